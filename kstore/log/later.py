"""Imports that wait until a name is first used: a program that appends needs a third of a log's modules.

    if TYPE_CHECKING:
        from kstore.log.compact.compactor import compact
    else:
        later(globals(), {"kstore.log.compact.compactor": "compact"})

For functions and classes that are called, are asked for by isinstance, or stand in annotations; not for
constants and base classes.
"""

from importlib import import_module
from typing import Any, Union

from kstore.engine.io.file import frees_descriptor


class Later:
    """Stands for a function or a class until it is used, and then gives its name in `namespace` to it."""

    def __init__(self, namespace: dict[str, Any], module: str, name: str) -> None:
        self._namespace = namespace
        self._module = module
        self._name = name

    def _found(self) -> Any:
        while True:
            try:
                module = import_module(self._module)
                break
            except OSError as e:  # the files that kstore keeps open leave no descriptor
                if e.errno is None or not frees_descriptor(e.errno):
                    raise
        found = self._namespace[self._name] = getattr(module, self._name)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._found()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `typing` asks for some of what stands in an annotation
            raise AttributeError(name)
        return getattr(self._found(), name)

    def __getitem__(self, key: Any) -> Any:
        return self  # a generic class is called without its parameters

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._found())

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007 - in an annotation

    def __repr__(self) -> str:
        return f"{self._module}.{self._name}"


def later(namespace: dict[str, Any], names: dict[str, str]) -> None:
    """Defines names in the namespace of a module, by the modules that have them."""
    for module, words in names.items():
        for name in words.split():
            namespace[name] = Later(namespace, module, name)
