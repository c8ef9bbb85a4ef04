"""Model folder: a user's own model, an ONNX graph and its `tokenizer.json`, without a gateway."""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

SCHEME = "file:"
ID = re.compile(r"file-[0-9a-f]{16}")
"""Ids of such models: by content, so that a moved folder is still the same model."""
_GRAPHS = ("model.onnx", "onnx/model.onnx")
_TOKENIZER = "tokenizer.json"
_SETTINGS = ("config.json", "sentence_bert_config.json", "1_Pooling/config.json")
_MAX_TOKENS = 512
_IDS = ("input_ids", "ids")
_MASKS = ("attention_mask",)
_TYPES = ("token_type_ids",)
_OUTPUTS = ("sentence_embedding", "logits", "last_hidden_state", "token_embeddings")
"""Preferred before any other output: an export often has `pooler_output` too, which was trained for another purpose."""
_INPUTS = frozenset({*_IDS, *_MASKS, *_TYPES})


@dataclass(frozen=True)
class Folder:
    """The files of one model, and the variable with its path, for errors."""

    path: Path
    variable: str

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise self.fault(ErrorCode.MODEL_MISSING, f"{self.path} is not a folder")
        if self._graph is None:
            raise self.fault(ErrorCode.MODEL_MISSING, f"{self.path} contains neither {' nor '.join(_GRAPHS)}")
        if not (self.path / _TOKENIZER).is_file():
            raise self.fault(ErrorCode.MODEL_MISSING, f"{self.path} does not contain {_TOKENIZER}")

    @property
    def graph(self) -> Path:
        """Return the path of the ONNX graph."""
        assert self._graph is not None
        return self._graph

    @property
    def _graph(self) -> Path | None:
        return next((path for name in _GRAPHS if (path := self.path / name).is_file()), None)

    @cached_property
    def model_id(self) -> str:
        """Return the id: the hash of graph, external weights, tokenizer and settings."""
        whole = hashlib.sha256()
        weights = sorted(self.graph.parent.glob(f"{self.graph.name}?data*"))
        for path in (self.graph, *weights, self.path / _TOKENIZER, *(self.path / name for name in _SETTINGS)):
            if path.is_file():
                with path.open("rb") as file:
                    whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return f"file-{whole.hexdigest()[:16]}"

    def max_tokens(self) -> int:
        """Return the maximum number of tokens: of the settings, else of the tokenizer, else 512."""
        limits = [
            self._setting("sentence_bert_config.json", "max_seq_length"),
            self._setting("config.json", "max_position_embeddings"),
            (self._setting(_TOKENIZER, "truncation") or {}).get("max_length"),
        ]
        return (
            min([_MAX_TOKENS, *(each for each in limits[:2] if each)]) if any(limits[:2]) else limits[2] or _MAX_TOKENS
        )

    def by_first_token(self) -> bool:
        """Whether a text's vector is that of its first token, by `1_Pooling/config.json`; else it is the mean."""
        return bool(self._setting("1_Pooling/config.json", "pooling_mode_cls_token"))

    def fault(self, code: str, problem: str) -> Permanent:
        """Return an error that names the variable."""
        return Permanent(code, (Problem(field=self.variable, problem=problem),))

    def _setting(self, name: str, key: str) -> Any:
        try:
            found = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise self.fault(ErrorCode.MODEL_UNREADABLE, f"{self.path / name}: {error}") from error
        return found.get(key) if isinstance(found, dict) else None


def folder_of(name: str, variable: str) -> Folder:
    """Return the folder of `file:DIR`. Raises `Permanent` `invalid` or `model_missing`."""
    path = Path(name.removeprefix(SCHEME)).expanduser()
    if not name.startswith(SCHEME) or not path.is_absolute():
        raise Permanent(
            ErrorCode.INVALID, (Problem(field=variable, problem=f"{name} is not {SCHEME}/DIR with an absolute path"),)
        )
    return Folder(path, variable)


def remember(folder: Folder, cache_dir: Path) -> None:
    """Link the folder in `cache_dir`, so that the model is found by its id alone. Raises `Permanent`."""
    link = cache_dir.expanduser() / folder.model_id
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        draft.symlink_to(folder.path.resolve())
        draft.replace(link)
    except OSError as error:
        raise folder.fault(ErrorCode.MODEL_CACHE_NOT_WRITABLE, f"{link}: {error.strerror}") from error


def remembered(model_id: str, cache_dir: Path, variable: str) -> Folder:
    """Return the folder of a model by its id. Raises `Permanent` if it is missing or has changed."""
    link = cache_dir.expanduser() / model_id
    folder = Folder(link.resolve(), variable)
    if folder.model_id != model_id:
        raise folder.fault(
            ErrorCode.MODEL_DIFFERS, f"{folder.path} has changed: it was {model_id} and is now {folder.model_id}"
        )
    return folder


class LocalModel:
    """The graph and tokenizer of a folder, loaded at the first use. It may be used by several threads."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._loading = Lock()

    def encode(self, text: str, second: str | None = None) -> "Encoding":
        """Return the tokens of a text, or of a pair."""
        return self._load()[0].encode(_characters(text), None if second is None else _characters(second))

    def run(self, encoding: "Encoding") -> npt.NDArray[np.float32]:
        """Run the graph on one text; return (tokens, n) or (n,). Raises `Permanent`."""
        _, session, output = self._load()
        inputs_by_name = {
            **dict.fromkeys(_IDS, encoding.ids),
            **dict.fromkeys(_MASKS, encoding.attention_mask),
            **dict.fromkeys(_TYPES, encoding.type_ids),
        }
        fed = {each.name: np.array([inputs_by_name[each.name]], np.int64) for each in session.get_inputs()}
        try:
            output_values = np.asarray(session.run([output], fed)[0], np.float32)
        except Exception as error:  # onnxruntime's own errors share no other class
            raise self.folder.fault(ErrorCode.MODEL_FAILS, f"{self.folder.graph}: {error}"[:500]) from error
        if output_values.ndim not in (2, 3) or output_values.shape[0] != 1 or not output_values.size:
            problem = f"{output} has the shape {output_values.shape} for one text: neither (1, n) nor (1, tokens, n)"
            raise self.folder.fault(ErrorCode.MODEL_OUTPUTS, problem)
        if not np.isfinite(output_values).all():
            raise self.folder.fault(ErrorCode.MODEL_FAILS, f"{output} is not finite")
        return np.asarray(output_values[0], np.float32)

    def _load(self) -> "tuple[Tokenizer, InferenceSession, str]":
        with self._loading:
            return self._loaded

    @cached_property
    def _loaded(self) -> "tuple[Tokenizer, InferenceSession, str]":
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(self.folder.path / _TOKENIZER))
            tokenizer.no_padding()
            tokenizer.enable_truncation(self.folder.max_tokens())
        except Permanent:
            raise
        except Exception as error:  # the tokenizers package raises Exception itself
            raise self.folder.fault(
                ErrorCode.MODEL_UNREADABLE, f"{self.folder.path / _TOKENIZER}: {error}"[:500]
            ) from error
        options = SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False
        try:
            session = InferenceSession(self.folder.graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # as above
            raise self.folder.fault(ErrorCode.MODEL_UNREADABLE, f"{self.folder.graph}: {error}"[:500]) from error
        return tokenizer, session, self._output(session)

    def _output(self, session: "InferenceSession") -> str:
        """Return the name of the output to read: a known one, else vectors of tokens, else a vector of the text."""
        inputs = {each.name for each in session.get_inputs()}
        if not inputs & set(_IDS) or inputs - _INPUTS:
            required, known = ", ".join(sorted(inputs)), ", ".join(sorted(_INPUTS))
            problem = f"{self.folder.graph} has the inputs {required}; a text model has input_ids and at most {known}"
            raise self.folder.fault(ErrorCode.MODEL_INPUTS, problem)
        ranks: dict[str, int] = {each.name: len(each.shape) for each in session.get_outputs()}
        named = [name for name in _OUTPUTS if ranks.get(name) in (2, 3)]
        for rank in (3, 2):
            named += [name for name, found in ranks.items() if found == rank]
        if named:
            return named[0]
        problem = f"{self.folder.graph} has the outputs {', '.join(ranks)}, none of shape (1, n) or (1, tokens, n)"
        raise self.folder.fault(ErrorCode.MODEL_OUTPUTS, problem)


def _characters(text: str) -> str:
    """Return the text without unpaired surrogates, which are legal in a Python string and in JSON but are no
    characters."""
    return text.encode(errors="replace").decode()
