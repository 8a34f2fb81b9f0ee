"""What code needs of `typing` when it runs, without the import of `typing`.

`typing` imports `re` and `enum`, and its NamedTuple compiles code for each class: together a third of the
time from the start of a program to its first record. Names that only annotations use are imported from
`typing` under TYPE_CHECKING. Type checkers see the names of `typing` here, too.
"""

__all__ = ["TYPE_CHECKING", "NamedTuple", "cast", "overload"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, cast, overload
else:
    from operator import itemgetter

    class _Signature:
        """The signature of a class of named tuples, for `inspect`."""

        def __get__(self, instance, owner):
            from inspect import Parameter, Signature

            none, kind = Parameter.empty, Parameter.POSITIONAL_OR_KEYWORD
            types, defaults = owner.__annotations__, owner._field_defaults
            return Signature(
                Parameter(field, kind, default=defaults.get(field, none), annotation=types.get(field, none))
                for field in owner._fields
            )

    class _NamedTuple(tuple):
        """A tuple with named fields, with the methods of `typing.NamedTuple`."""

        __slots__ = ()
        __signature__ = _Signature()

        def __new__(_cls, *values, **named):
            fields = _cls._fields
            if named or len(values) != len(fields):
                rest = fields[len(values) :]
                given = _cls._field_defaults | named
                if len(values) > len(fields) or not named.keys() <= set(rest) <= given.keys():
                    raise TypeError(f"{_cls.__name__} takes {', '.join(fields)}")
                values = (*values, *map(given.get, rest))
            return tuple.__new__(_cls, values)

        @classmethod
        def _make(cls, iterable):
            return cls(*iterable)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changes):
            return type(self)(**(self._asdict() | changes))

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            shown = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({shown})"

    class _NamedTupleMaker(type):
        """Makes a class with a property for each annotation, and defaults of the values."""

        def __new__(cls, name, bases, body):
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            body |= {field: property(itemgetter(at)) for at, field in enumerate(fields)}
            body |= {
                "__slots__": (),
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": defaults,
            }
            body.setdefault("__doc__", f"{name}({', '.join(fields)})")
            return type(name, (_NamedTuple,), body)

    NamedTuple = type.__new__(_NamedTupleMaker, "NamedTuple", (), {})

    def cast(kind, value):
        return value

    def overload(function):
        return function
