"""Figures of the house: files, lines, functions, who imports whom, names that occur twice, what is documented.

    python benchmarks/house.py [ROOT] [--json] [--names]

Reads the sources of the four packages below ROOT (default: this checkout) and imports none of them. ``--names`` also
lists what is behind the counts.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

PACKAGES = {
    "contract": "foredraft_contract",
    "runtime": "foredraft",
    "exporter": "foredraft_exporter",
    "graphs": "foredraft_graphs",
    "plugins": "foredraft_plugins",
}
LONG_FUNCTION, MANY_PARAMETERS = 60, 10
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Module:
    """One source file, parsed."""

    name: str
    path: Path
    lines: int
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    """Modules of ours that it imports when it is loaded."""
    typing_imports: set[str] = field(default_factory=set)
    """Those that it imports for type checkers only."""


def modules(root: Path) -> dict[str, Module]:
    """All modules of the packages by dotted name, their imports resolved."""
    found: dict[str, Module] = {}
    for folder, package in PACKAGES.items():
        for path in sorted((root / folder / package).rglob("*.py")):
            parts = list(path.relative_to(root / folder).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text()
            found[name] = Module(name, path.relative_to(root), len(text.splitlines()), ast.parse(text))
    for module in found.values():
        _resolve(module, found)
    return found


def _resolve(module: Module, known: dict[str, Module]) -> None:
    for statement in module.tree.body:
        typing = isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")
        target = module.typing_imports if typing else module.imports
        if isinstance(statement, Function | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                target.update(alias.name for alias in node.names if alias.name in known)
            elif isinstance(node, ast.ImportFrom) and node.module in known:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    target.add(inner if inner in known else node.module)
    module.imports.discard(module.name)
    module.typing_imports -= module.imports | {module.name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan's strongly connected components of two or more)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return sorted(groups)


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """Every function and method with its qualified name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield prefix + child.name, child
            named = isinstance(child, Function | ast.ClassDef)
            yield from walk(child, f"{prefix}{child.name}." if named else prefix)

    return walk(module.tree, f"{module.name}:")


def parameters(function: Function) -> int:
    """How many parameters it has, without ``self`` and ``cls``."""
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([argument for argument in given if argument.arg not in ("self", "cls")])


def public(module: Module) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Public classes and functions, and the public methods of public classes."""
    for node in module.tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield f"{module.name}:{node.name}", node
            for child in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(child, Function) and not child.name.startswith("_"):
                    yield f"{module.name}:{node.name}.{child.name}", child


def repeated(names: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Of (name, where): the names that occur at several places."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, where in names:
        places[name].append(where)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def figures(root: Path) -> dict[str, Any]:
    """All figures of the checkout at ``root``."""
    known = modules(root)
    sizes = {name: module.lines for name, module in known.items()}
    lengths = {
        name: (node.end_lineno or 0) - node.lineno + 1 for module in known.values() for name, node in functions(module)
    }
    wide = {name: parameters(node) for module in known.values() for name, node in functions(module)}
    loaded = {name: module.imports for name, module in known.items()}
    with_types = {name: module.imports | module.typing_imports for name, module in known.items()}
    fan_in = Counter(other for others in with_types.values() for other in others)
    names = [(name, node) for module in known.values() for name, node in public(module)]
    files = [module for module in known.values() if module.path.name != "__init__.py"]
    classes = [
        (node.name, module.name)
        for module in known.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    longest_file, longest_function = max(sizes, key=sizes.__getitem__), max(lengths, key=lengths.__getitem__)
    return {
        "files": len(known),
        "lines": sum(sizes.values()),
        "median file": median(sizes.values()),
        "longest file": [longest_file, sizes[longest_file]],
        "functions": len(lengths),
        "median function": median(lengths.values()),
        "longest function": [longest_function, lengths[longest_function]],
        f"functions over {LONG_FUNCTION} lines": sorted(n for n, size in lengths.items() if size > LONG_FUNCTION),
        "busiest modules (in, out)": [[n, count, len(with_types[n])] for n, count in fan_in.most_common(5)],
        "circles": circles(loaded),
        "circles with types": circles(with_types),
        "module names twice": repeated([(module.path.stem, module.name) for module in files]),
        "class names twice": repeated(classes),
        "public names": len(names),
        "documented": sum(ast.get_docstring(node) is not None for _, node in names),
        f"more than {MANY_PARAMETERS} parameters": {n: c for n, c in sorted(wide.items()) if c > MANY_PARAMETERS},
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--json", action="store_true", help="everything, for machines")
    parser.add_argument("--names", action="store_true", help="also list what is behind the counts")
    arguments = parser.parse_args()
    found = figures(arguments.root)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for title, value in found.items():
        print(f"{title:28} {_shown(value, arguments.names)}")


def _shown(value: object, names: bool) -> str:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], int):
        return f"{value[1]}  {value[0]}"
    if isinstance(value, list | dict):
        listed = [f"{key}: {inner}" for key, inner in value.items()] if isinstance(value, dict) else map(str, value)
        return "\n    ".join([str(len(value)), *listed]) if names else str(len(value))
    return str(value)


if __name__ == "__main__":
    main()
