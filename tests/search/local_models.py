"""Models as a user keeps them: folders with an ONNX graph and a tokenizer, made of MiniLM's weights or by hand."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from counterpoint.memory.embedding.files import FULL_ID, ModelSettings, load_tokenizer, model_file

TOKENS = "last_hidden_state"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def minilm(folder: Path, *, pooled: bool = False) -> Path:
    """MiniLM as exports have it: three inputs, vectors of tokens and `pooler_output`; `pooled`: the text's vector."""
    model = onnx.load(model_file(ModelSettings().model_cache_dir, FULL_ID))
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["input_ids" if name == "ids" else name for name in node.input]
    del graph.input[:]
    graph.input.extend(helper.make_tensor_value_info(name, TensorProto.INT64, [1, "tokens"]) for name in INPUTS)
    if pooled:
        graph.node.append(helper.make_node("Identity", ["vector"], ["sentence_embedding"]))
        outputs = [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, [1, 384])]
    else:
        last = next(node for node in graph.node if node.name == "mean").input[0]
        graph.node.append(helper.make_node("Identity", [last], [TOKENS]))
        graph.node.append(helper.make_node("Neg", ["vector"], ["pooler_output"]))
        outputs = [
            helper.make_tensor_value_info("pooler_output", TensorProto.FLOAT, [1, "dimensions"]),
            helper.make_tensor_value_info(TOKENS, TensorProto.FLOAT, [1, "tokens", "dimensions"]),
        ]
    del graph.output[:]
    graph.output.extend(outputs)
    return save_model(folder, model)


def overlap(folder: Path) -> Path:
    """A cross-encoder by hand: its logit is how many tokens of the passage stand in the question, less one."""
    nodes = [
        helper.make_node("Unsqueeze", ["input_ids", "axis2"], ["column"]),
        helper.make_node("Unsqueeze", ["input_ids", "axis1"], ["row"]),
        helper.make_node("Equal", ["column", "row"], ["same"]),
        helper.make_node("Cast", ["same"], ["alike"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["second", "axis2"], ["of_second"]),
        helper.make_node("Sub", ["one", "second"], ["first"]),
        helper.make_node("Unsqueeze", ["first", "axis1"], ["of_first"]),
        helper.make_node("Mul", ["alike", "of_second"], ["left"]),
        helper.make_node("Mul", ["left", "of_first"], ["both"]),
        helper.make_node("ReduceSum", ["both", "axes"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "many"], ["less"]),
        helper.make_node("Unsqueeze", ["less", "axis1"], ["logits"]),
    ]
    constants = {
        "axis1": np.array([1]), "axis2": np.array([2]), "axes": np.array([1, 2]),
        "one": np.float32(1), "many": np.float32(1),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "overlap",
        [helper.make_tensor_value_info(name, TensorProto.INT64, [1, "tokens"]) for name in INPUTS],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return save_model(folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def wrong(folder: Path, *, asks: str = "input_ids", gives: tuple[int | str, ...] = (1, 8), type_: int = 0) -> Path:
    """A model that is none of texts, or of none that is known: it gives its input, cast."""
    graph = helper.make_graph(
        [helper.make_node("Cast", [asks], ["out"], to=TensorProto.FLOAT)],
        "wrong",
        [helper.make_tensor_value_info(asks, type_ or TensorProto.INT64, list(gives))],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, list(gives))],
    )
    return save_model(folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def save_model(folder: Path, model: onnx.ModelProto) -> Path:
    """The folder with the model and MiniLM's tokenizer in it."""
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "tokenizer.json").write_text(load_tokenizer())
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    return folder
