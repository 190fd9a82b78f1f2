"""Load single modules of an engine's package, without what they import of it.

The packages of inference engines import a GPU stack, which no test here needs.
So the modules that make the wire are loaded from their files as they are, and
every other module of the package, and of some that are not installed, is a
stand-in: it can be imported, and whatever is asked of it is there and does
nothing.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import math
import sys
import types

sys.dont_write_bytecode = True  # an unpacked engine is not ours to write to


class Nothing:
    """Stands for a class, a function or an object. A function that it decorates
    stays what it is."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Nothing()

    def __class_getitem__(cls, item):
        return cls


class StandIn(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if (module := f"{self.__name__}.{name}") in self.__spec__.loader.loaded:
            return importlib.import_module(module)
        value = type(name, (Nothing,), {})
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root, loaded, made_up):
        self.root, self.loaded, self.made_up = root, loaded, made_up

    def find_spec(self, name, path=None, target=None):
        if name in self.loaded:
            return importlib.util.spec_from_file_location(name, path_of(self.root, name))
        if name.partition(".")[0] in self.made_up:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def path_of(root, module):
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def load(root, loaded, made_up, prepare=lambda: None):
    """Load modules from their files, in a package of which the rest is made up.

    made_up names the top-level packages of which everything that is not loaded
    is a stand-in. prepare is called before the first is loaded. Returns the
    modules in the order of their names.
    """
    sys.meta_path.insert(0, Finder(root, loaded, made_up))
    prepare()
    return [importlib.import_module(name) for name in loaded]


def class_from(root, module, name, members):
    """Take a class, cut to some of its members, out of a module that is too heavy
    to load. The module's imports are carried out."""
    path = path_of(root, module)
    body = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            body.append(node)
        elif isinstance(node, ast.ClassDef) and node.name == name:
            node.bases, node.keywords, node.decorator_list = [], [], []
            node.body = [m for m in node.body if named(m) & members]
            if (found := set().union(*map(named, node.body))) != members:
                raise SystemExit(f"{path}: {name} has no {members - found}")
            body.append(node)
    names = {"__name__": module}
    exec(compile(ast.Module(body, type_ignores=[]), str(path), "exec"), names)
    return names[name]


def named(node):
    """The names that a statement in the body of a class defines."""
    if isinstance(node, ast.Assign):
        return {t.id for t in node.targets if isinstance(t, ast.Name)}
    return {getattr(node, "name", None)} - {None}


class KeepingSocket:
    """A socket that keeps the messages it is given."""

    def __init__(self):
        self.sent = []

    def send_multipart(self, frames, *args, **kwargs):
        self.sent.append([bytes(frame) for frame in frames])

    def send(self, frame, *args, **kwargs):
        self.sent.append([bytes(frame)])


def plain(value):
    """The value for JSON, which knows no infinity and nothing that is not a
    number."""
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def write(folder, name, vectors):
    """Write a golden file, one vector a line."""
    lines = (json.dumps(plain(v), ensure_ascii=True, allow_nan=False) for v in vectors)
    folder.joinpath(name).write_text("[\n" + ",\n".join(lines) + "\n]\n")


def serve(operations):
    """Carry out one command per line of standard input, as JSON, and answer each
    with a line: {"error": ...} if it could not be done."""
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = operations[command.pop("op")](**command)
        except Exception as e:
            logging.exception("command failed")
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(plain(answer or {})), flush=True)
