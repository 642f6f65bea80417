"""`Record`: what `typing.NamedTuple` is to the type checker, at a tenth of its import cost.

The shim pays for every import on every job, and `import typing` alone costs more than
starting Python (docs/decisions/0001-hot-path-imports.md). Fields, defaults, keywords,
equality, hashing and `_replace` behave as NamedTuple's do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from _collections import _tuplegetter

    class Record(tuple):
        __slots__ = ()
        _fields = ()
        _field_defaults = {}

        def __init_subclass__(cls):
            names = tuple(cls.__annotations__)
            defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
            cls._fields = names
            cls._field_defaults = defaults
            for index, name in enumerate(names):
                setattr(cls, name, _tuplegetter(index, name))

        def __new__(cls, *args, **kwargs):
            names = cls._fields
            if kwargs or len(args) != len(names):
                values = list(args)
                for name in names[len(args) :]:
                    if name in kwargs:
                        values.append(kwargs.pop(name))
                    elif name in cls._field_defaults:
                        values.append(cls._field_defaults[name])
                    else:
                        raise TypeError(f"{cls.__name__}: missing argument {name!r}")
                if kwargs or len(values) > len(names):
                    raise TypeError(f"{cls.__name__}: unexpected arguments {sorted(kwargs)}")
                args = values
            return tuple.__new__(cls, args)

        def __repr__(self):
            pairs = ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self))
            return f"{type(self).__name__}({pairs})"

        def __eq__(self, other):
            return type(self) is type(other) and tuple.__eq__(self, other)

        def __ne__(self, other):
            return not self == other

        def __hash__(self):
            return tuple.__hash__(self)

        def _replace(self, **changes):
            return type(self)(*[changes.pop(n, v) for n, v in zip(self._fields, self)], **changes)

        def _asdict(self):
            return dict(zip(self._fields, self))


__all__ = ["Record"]
