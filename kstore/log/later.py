"""Imports that wait until a name is first used: a program that appends needs a third of a log's modules.

    if TYPE_CHECKING:
        from kstore.log.compact.compactor import compact
    else:
        later(globals(), {"kstore.log.compact.compactor": "compact"})

For functions, and for classes that are called or asked for by isinstance; not for constants and base classes.
"""

from __future__ import annotations

from kstore.engine.io.file import frees_descriptor
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Later:
    """Stands for a function or a class until it is used, and then gives its name in `namespace` to it."""

    def __init__(self, namespace: dict[str, Any], module: str, name: str) -> None:
        self._namespace = namespace
        self._module = module
        self._name = name

    def _found(self) -> Any:
        while True:
            try:
                module = __import__(
                    self._module, fromlist=[self._name]
                )  # without `importlib`, which takes 0.5 ms
                break
            except OSError as e:  # the files that kstore keeps open leave no descriptor
                if e.errno is None or not frees_descriptor(e.errno):
                    raise
        found = self._namespace[self._name] = getattr(module, self._name)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._found()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `inspect` asks what is in a module for some
            raise AttributeError(name)
        return getattr(self._found(), name)

    def __getitem__(self, key: Any) -> Any:
        return self  # a generic class is called without its parameters

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._found())

    def __repr__(self) -> str:
        return f"{self._module}.{self._name}"


def later(namespace: dict[str, Any], names: dict[str, str]) -> None:
    """Defines names in the namespace of a module, by the modules that have them."""
    for module, words in names.items():
        for name in words.split():
            namespace[name] = Later(namespace, module, name)
