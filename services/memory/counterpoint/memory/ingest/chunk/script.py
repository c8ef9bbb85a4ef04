"""JavaScript and TypeScript by function, class, method and constant, parsed by tree-sitter's grammars."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from counterpoint.memory.ingest.chunk.pieces import SourceSection, short

if TYPE_CHECKING:
    from tree_sitter import Node

SCRIPT_LIMIT_CHARS = 512 * 1024
PARSE_LIMIT = 80_000
"""Limit on the number of progress callbacks of a parse: twice that of the densest program of that length.

It is not a time limit, so that a source is always split in the same way.
"""
_SLICE_BYTES = 64 * 1024

_BODIES = frozenset({"statement_block", "class_body", "interface_body", "object_type", "enum_body"})
_MEMBERS = frozenset({"class_body", "statement_block"})
_FUNCTIONS = frozenset({"function_expression", "arrow_function", "generator_function", "class"})
_DEFINITIONS = frozenset(
    {
        "function_declaration", "generator_function_declaration", "class_declaration", "abstract_class_declaration",
        "interface_declaration", "type_alias_declaration", "enum_declaration", "internal_module", "module",
        "method_definition", "function_signature", "ambient_declaration", "export_statement",
    }
)  # fmt: skip
_AROUND = frozenset(
    {
        "export_statement", "ambient_declaration", "expression_statement", "lexical_declaration",
        "variable_declaration", "variable_declarator", "assignment_expression", "field_definition",
        "public_field_definition",
    }
)  # fmt: skip
"""Node types that may surround a definition."""
_OPENED = frozenset({"class_declaration", "abstract_class_declaration", "class", "internal_module", "module"})
_BESIDE = frozenset({"comment", "decorator"})


def script(source: str, dialect: Literal["javascript", "typescript"], max_chars: int) -> list[SourceSection]:
    """Return each definition as a section with the comments above it; of a class that is too long each of its members.

    Text that does not parse is skipped by the grammar and cut like its surroundings. Raises `ValueError` for a source
    that is too long.
    """
    if len(source) > SCRIPT_LIMIT_CHARS:
        raise ValueError(f"longer than {SCRIPT_LIMIT_CHARS} characters")
    content = source.encode(errors="surrogatepass")
    offsets = range(len(content) + 1) if len(content) == len(source) else _characters(content)
    cut = _Script(source, offsets, max_chars)
    return list(cut.suite(_tree(content, dialect).children, 0, len(source), ""))


def _tree(content: bytes, dialect: Literal["javascript", "typescript"]) -> "Node":
    """Return the syntax tree: of TypeScript with JSX if it is not plain TypeScript. Raises `ValueError`."""
    if dialect == "javascript":
        import tree_sitter_javascript

        return _parsed(content, tree_sitter_javascript.language())
    import tree_sitter_typescript

    plain = _parsed(content, tree_sitter_typescript.language_typescript())
    if not plain.has_error:
        return plain
    with_jsx = _parsed(content, tree_sitter_typescript.language_tsx())
    return plain if with_jsx.has_error else with_jsx


def _parsed(content: bytes, language: object) -> "Node":
    """Return the root of the tree. Some texts that are not programs take quadratic time, during which no other thread
    would run: the parse is limited by progress callbacks. Raises `ValueError`."""
    from tree_sitter import Language, Parser

    callbacks = 0

    def too_many_callbacks(offset: int, error: bool) -> bool:
        nonlocal callbacks
        callbacks += 1
        return callbacks > PARSE_LIMIT

    try:
        tree = Parser(Language(language)).parse(
            lambda offset, _: content[offset : offset + _SLICE_BYTES], progress_callback=too_many_callbacks
        )
    except ValueError as error:
        raise ValueError("takes too long to parse") from error
    return tree.root_node


def _characters(content: bytes) -> Sequence[int]:
    """Return the offset in characters of each offset in bytes, and of the end."""
    return [0, *accumulate((byte & 0xC0) != 0x80 for byte in content[1:]), len(content.decode(errors="surrogatepass"))]


@dataclass(frozen=True)
class _Unit:
    """Nodes that share lines, usually one, with the comments before them."""

    start: int
    end: int
    nodes: tuple["Node", ...]


@dataclass(frozen=True)
class _Script:
    """A source with the offset in characters of each of its bytes."""

    text: str
    offsets: Sequence[int]
    max_chars: int

    def suite(self, nodes: Sequence["Node"], start: int, end: int, context: str) -> Iterator[SourceSection]:
        """Return sections of `text[start:end]`, which contains `nodes`: one for each definition, and one for the text
        between two."""
        begin = filled = start
        for unit in self._units(nodes, start, end):
            defined = _defines(unit.nodes[0])
            if filled > begin and (defined or unit.end - begin > self.max_chars):
                yield SourceSection(begin, filled, context)
                begin = filled
            if defined or unit.end - begin > self.max_chars:
                yield from self._group(unit, context)
                begin = unit.end
            filled = unit.end
        yield SourceSection(begin, end, context)

    def _group(self, unit: _Unit, outer: str) -> Iterator[SourceSection]:
        node, context = unit.nodes[0], outer
        if _defines(node):
            context = f"{outer} > {self._signature(node)}" if outer else self._signature(node)
        inner = _inner(node)
        body = _body(inner)
        opened = unit.end - unit.start > self.max_chars and len(unit.nodes) == 1
        if opened and body is not None and inner.type in _OPENED and body.type in _MEMBERS:
            yield from self.suite(body.children[1:-1], unit.start, unit.end, context)
        else:
            yield SourceSection(unit.start, unit.end, context, tuple(sorted(self._breaks(unit))) if opened else ())

    def _units(self, nodes: Sequence["Node"], start: int, end: int) -> Iterator[_Unit]:
        """Extend the last section to the `end`: a closing bracket is not a section."""
        own = [node for node in nodes if node.is_named and node.type not in _BESIDE]
        together: list[Node] = []
        for n, node in enumerate(own):
            together.append(node)
            after = self._line_after(node)
            last = n == len(own) - 1
            if last or self.offsets[own[n + 1].start_byte] >= after:
                yield _Unit(start, end if last else after, tuple(together))
                start, together = after, []

    def _line_after(self, node: "Node") -> int:
        return (self.text.find("\n", self.offsets[node.end_byte] - 1) + 1) or len(self.text)

    def _line_of(self, node: "Node") -> int:
        return self.text.rfind("\n", 0, self.offsets[node.start_byte]) + 1

    def _breaks(self, unit: _Unit) -> set[int]:
        """Return the beginnings of the lines on which statements inside a node begin."""
        found, waiting = set[int](), list(unit.nodes)
        while waiting:
            node = waiting.pop()
            waiting += node.named_children
            if node.type.endswith(("_statement", "_declaration", "_definition", "pair")):
                found.add(self._line_of(node))
        return {place for place in found if unit.start < place < unit.end}

    def _signature(self, node: "Node") -> str:
        """Return the head of a definition, up to its body, on one line."""
        inner = _inner(node)
        body = _body(inner)
        start = self.offsets[node.start_byte]
        end = self.offsets[body.start_byte] if body else self.offsets[inner.end_byte]
        text = self.text[start:end]
        return short(text if body else text.splitlines()[0]).rstrip(" {=;")


def _defines(node: "Node") -> bool:
    """Whether a node is a definition: a declaration, or a function or class that is assigned to a name."""
    return node.type in _DEFINITIONS or _inner(node).type in _FUNCTIONS


def _inner(node: "Node") -> "Node":
    """Return the inner definition: the function in `export const f = () => {}`."""
    while node.type in _AROUND:
        named = [child for child in node.named_children if child.type not in _BESIDE]
        if not named:
            break
        node = named[-1]
    return node


def _body(node: "Node") -> "Node | None":
    return next((child for child in node.named_children if child.type in _BODIES), None)
