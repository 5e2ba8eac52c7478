"""`dataclass` with the meaning of the standard library's, made in a sixth of the time:
nothing is compiled before its first use.

The standard decorator compiles up to six methods of each class when its module loads. The library has some 300
dataclasses, of which a run uses a few dozen. Compiling the rest would take a seventh of the processor time of each
command that opens a table (0.83 s instead of 0.71), and time of each start of a Spark worker.

Only the options `frozen`, `slots` and `kw_only` exist, and no `InitVar`. A type checker sees the standard decorator.
`tests/unit/model/test_dataclass.py` compares the two; if a version of Python changes the standard one, take that again.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import MISSING, FrozenInstanceError, fields
    from dataclasses import dataclass as standard
    from reprlib import recursive_repr

    def dataclass(*, frozen: bool = False, slots: bool = False, kw_only: bool = False) -> Callable[[type], type]:
        """As `dataclasses.dataclass`, with the options that the library uses."""

        def decorate(cls: type) -> type:
            generated = standard(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
            members = generated.__dict__
            methods = {"__init__": _Init(generated, frozen), "__repr__": _repr}
            if "__eq__" not in members:
                methods["__eq__"] = _equality(_values(generated, [f.name for f in fields(generated) if f.compare]))
            if frozen:
                methods |= {"__setattr__": _refuse_set(generated), "__delattr__": _refuse_delete(generated)}
                if slots:
                    methods |= {"__getstate__": _state, "__setstate__": _set_state}
            for name, method in methods.items():
                if name not in members:
                    setattr(generated, name, method)
            if members.get("__hash__") is None:  # Python's own None beside an `__eq__`, too.
                hashed = [f.name for f in fields(generated) if (f.compare if f.hash is None else f.hash)]
                generated.__hash__ = _hash(_values(generated, hashed)) if frozen else None
            return generated

        return decorate

    class _Init:
        """`__init__` of a dataclass, which takes its own place when it is first asked for."""

        def __init__(self, cls: type, frozen: bool) -> None:
            self._cls, self._frozen = cls, frozen

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            init = self._cls.__dict__["__init__"]
            if init is self:  # Two threads may both compile it.
                init = _compiled(self._cls, self._frozen)
                self._cls.__init__ = init
            return init.__get__(instance, owner)

    class _New:
        """The default of an argument that stands for a new value of its factory."""

        def __repr__(self) -> str:
            return "<factory>"

    _NEW = _New()

    def _compiled(cls: type, frozen: bool) -> Callable[..., None]:
        names: dict[str, Any] = {"_set": object.__setattr__, "_NEW": _NEW}
        ordered, keyed, body = ["self"], [], []
        for index, f in enumerate(fields(cls)):
            value = f.name if f.init else None
            if f.default is not MISSING:
                names[f"_default{index}"] = f.default
                default, value = f"=_default{index}", value or f"_default{index}"
            elif f.default_factory is not MISSING:
                names[f"_make{index}"] = f.default_factory
                default = "=_NEW"
                value = f"_make{index}() if {f.name} is _NEW else {f.name}" if f.init else f"_make{index}()"
            else:
                default = ""
            if f.init:
                (keyed if f.kw_only else ordered).append(f.name + default)
            if value is not None:
                body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        parameters = ", ".join([*ordered, *(["*", *keyed] if keyed else [])])
        exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names)
        init = names["__init__"]
        init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        init.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": None}
        return init

    def _values(cls: type, names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
        """The tuple of some fields' values."""
        if len(names) > 1:
            return attrgetter(*names)
        return (lambda self: (getattr(self, names[0]),)) if names else (lambda self: ())

    def _equality(values: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def __eq__(self: Any, other: Any) -> Any:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        return __eq__

    def _hash(values: Callable[[Any], Any]) -> Callable[[Any], int]:
        def __hash__(self: Any) -> int:
            return hash(values(self))

        return __hash__

    def _refuse_set(cls: type) -> Callable[[Any, str, Any], None]:
        def __setattr__(self: Any, name: str, value: Any) -> None:
            if type(self) is cls or name in cls.__dataclass_fields__:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        return __setattr__

    def _refuse_delete(cls: type) -> Callable[[Any, str], None]:
        def __delattr__(self: Any, name: str) -> None:
            if type(self) is cls or name in cls.__dataclass_fields__:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return __delattr__

    @recursive_repr()
    def _repr(self: Any) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return f"{self.__class__.__qualname__}({shown})"

    def _state(self: Any) -> list[Any]:
        return [getattr(self, f.name) for f in fields(self)]

    def _set_state(self: Any, state: list[Any]) -> None:
        for f, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, f.name, value)
