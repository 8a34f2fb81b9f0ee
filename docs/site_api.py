"""An extension of griffe, named in mkdocs.yml: it prepares what the pages of the API show.

Docstrings become Markdown, public classes get the members of their private bases, and signatures have types
and values in the place of private names. Nothing of kstore is imported: griffe reads sources, and the stubs
of compiled modules.
"""

import dataclasses
import re
from typing import Any

import griffe

HEADING = re.compile(r"([A-Z][\w ,]+):$")
ENTRY = re.compile(r"(mode \"\w+\+?\"|\*{0,2}\w+(?:, \*{0,2}\w+)*): ")
CODE = re.compile(r"(`[^`]*`|\[[^\]]*\]\[?|^ {4}.*$)", re.MULTILINE)
NAME = re.compile(r"(?<![\w.])(?:kstore\.)?([A-Z][a-z]+[A-Z]\w+)\b")  # one word may be a word of English
OPTIONS = ("LogConfig", "ConfigOptions")  # docs/configuration.md has their fields


class PublicApi(griffe.Extension):
    """Public names as a user sees them."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        loader.resolve_aliases(implicit=True, external=False)
        names = {name: pkg[name].canonical_path for name in pkg.exports or () if isinstance(name, str)}
        for module in _modules(pkg):
            for member in list(module.members.values()):
                if isinstance(member, griffe.Class):
                    if member.canonical_path in names.values():
                        _inherit(member, set(names.values()))
                    for each in member.members.values():
                        _prepare(each, names)
                _prepare(member, names)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    below = [m for m in module.members.values() if isinstance(m, griffe.Module)]
    return [module, *(found for each in below for found in _modules(each))]


def _inherit(cls: griffe.Class, public: set[str]) -> None:
    """Members of bases without a public name count as the class's own. They come first: append, for
    example."""
    own = dict(cls.members)
    cls.members.clear()
    for base in cls.mro():
        if base.canonical_path in public:
            break
        for name, member in base.members.items():
            if name not in own and name not in cls.members and not name.startswith("_"):
                cls.members[name] = griffe.Alias(name, member, parent=cls, inherited=True)
    cls.members |= own
    cls.bases = [base for base in cls.bases if _is_shown(base, public)]


def _is_shown(base: griffe.Expr | str, public: set[str]) -> bool:
    path = base if isinstance(base, str) else base.canonical_path
    return path in public or not path.startswith("kstore.")


def _prepare(thing: griffe.Object | griffe.Alias, names: dict[str, str]) -> None:
    if thing.is_alias:
        return
    if thing.docstring:
        thing.docstring.value = to_markdown(thing.docstring.value, names)
        if thing.name in OPTIONS:
            thing.docstring.value = thing.docstring.value.removesuffix("The options:")
        elif isinstance(thing, griffe.Class):
            thing.docstring.value += _fields(thing)
    if isinstance(thing, griffe.Function):
        for function in [thing, *(thing.overloads or ())]:
            function.returns = _expanded(function.returns)
            for parameter in function.parameters:
                parameter.annotation = _expanded(parameter.annotation)
                parameter.default = _expanded(parameter.default)
    elif isinstance(thing, griffe.Attribute):
        thing.annotation = _expanded(thing.annotation)


def _fields(cls: griffe.Class) -> str:
    """The attributes that have no docstring of their own."""
    fields = [
        f"- `{name}: {member.annotation}`"
        for name, member in cls.members.items()
        if isinstance(member, griffe.Attribute) and not member.docstring
        if member.annotation is not None and not name.startswith("_")
    ]
    return "\n\n**Fields:**\n\n" + "\n".join(fields) if fields else ""


# ---- docstrings ----------------------------------------------------------------------------------


def to_markdown(text: str, names: dict[str, str]) -> str:
    """A docstring as Markdown: what stands in it as "name: text" becomes a list, public names become
    links."""
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        heading = HEADING.match(lines[0])
        if heading and len(lines) > 1 and all(line.startswith("    ") for line in lines[1:]):
            lines = [line[4:] for line in lines[1:]]
            blocks.append(f"**{heading[1]}:**")
        if ENTRY.match(lines[0]) and all(ENTRY.match(line) or line.startswith(" ") for line in lines):
            lines = [_entry(line, names) for line in lines]
        blocks.append("\n".join(lines))
    parts = CODE.split("\n\n".join(blocks))
    parts[::2] = [NAME.sub(lambda name: _linked(name, names), part) for part in parts[::2]]
    return "".join(parts)


def _entry(line: str, names: dict[str, str]) -> str:
    entry = ENTRY.match(line)
    if not entry:
        return f"  {line.strip()}"
    words = entry[1].split(", ")
    if not any(word in names for word in words):
        words = [f"`{word}`" if " " not in word else word for word in words]
    return f"- {', '.join(words)}: {line[entry.end() :]}"


def _linked(name: re.Match[str], names: dict[str, str]) -> str:
    return f"[{name[0]}][{names[name[1]]}]" if name[1] in names else name[0]


# ---- signatures ----------------------------------------------------------------------------------


def _expanded(node: Any) -> Any:
    """An annotation or a default with types and values in the place of private names."""
    if isinstance(node, griffe.ExprName):
        meant = _meant(node)
        return node if meant is None else _expanded(meant)
    if isinstance(node, griffe.Expr):
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if isinstance(value, list):
                setattr(node, field.name, [_expanded(each) for each in value])
            elif field.name != "parent" and isinstance(value, griffe.Expr):
                setattr(node, field.name, _expanded(value))
    return node


def _meant(name: griffe.ExprName) -> Any:
    if not isinstance(name.parent, griffe.Object) or not re.match("_[A-Z]|[A-Z_]+$", name.name):
        return None
    try:
        found = name.parent[name.name] if name.name in name.parent.members else name.parent.module[name.name]
        if found.is_alias:
            found = found.final_target
    except (KeyError, griffe.GriffeError):
        return None
    return found.value if isinstance(found, griffe.Attribute) else None
