"""A family: one package, one file a member, found by the file's name.

``attention/scores/scaled_dot.py`` holds the class ``ScaledDot`` and is the score ``"scaled_dot"``
(``none.py`` holds ``None_``, since ``None`` is Python's own).
To add a member is to add a file. A file whose name starts with an underscore is no member: the
family's shared base stands there. A member's module is imported when it is first asked for, so a
family costs nothing until used.
"""

import inspect
import keyword
import pkgutil
from importlib import import_module, util
from typing import Any, Generic, TypeVar

from regard.errors import OptionError, unknown_name

Member = TypeVar("Member")


class Family(Generic[Member]):
    """The members of `package`, each a class in its own file.

    `kind` is the word used in messages: ``unknown score 'aditive'; …``.
    """

    def __init__(self, kind: str, package: str):
        self.kind = kind
        self.package = package

    def names(self) -> list[str]:
        """The members' names, sorted."""
        spec = util.find_spec(self.package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        modules = pkgutil.iter_modules(spec.submodule_search_locations)
        return sorted(m.name for m in modules if not m.name.startswith("_"))

    def get(self, name: str) -> type[Member]:
        """The class of the member called `name`; `OptionError` with the known names if none is."""
        if name not in self.names():
            raise unknown_name(self.kind, name, self.names())
        module = import_module(f"{self.package}.{name}")
        class_name = "".join(part.capitalize() for part in name.split("_"))
        return getattr(module, class_name + "_" * keyword.iskeyword(class_name))

    def create(self, name: str, **settings: Any) -> Member:
        """Make the member called `name`; a setting it does not take is an `OptionError`."""
        member = self.get(name)
        parameters = inspect.signature(member).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            for setting in settings.keys() - parameters.keys():
                raise OptionError(
                    f"{self.kind} {name!r} takes no setting {setting!r}; "
                    f"it takes: {', '.join(parameters) or 'none'}"
                )
        missing = [
            p.name
            for p in parameters.values()
            if p.default is p.empty
            and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
            and p.name not in settings
        ]
        if missing:
            raise OptionError(f"{self.kind} {name!r} needs: {', '.join(missing)}")
        return member(**settings)
