"""docstrings.py - runs the examples in docstrings, and refuses a public name without a docstring."""

import doctest
import importlib.util
import inspect
import pkgutil
import sys

import heddle

OTHERS = ("cuda_core", "cupy", "numba", "rmm")  # need the packages of their names, and a GPU


def main():
    failed = 0
    examples = 0
    has_torch = importlib.util.find_spec("torch") is not None
    modules = [heddle] + [
        importlib.import_module("heddle." + m.name)
        for m in pkgutil.iter_modules(heddle.__path__)
        if m.name not in ("__main__", *OTHERS) and (has_torch or not m.name.startswith("torch"))
    ]
    for module in modules:
        result = doctest.testmod(module)
        failed += result.failed
        examples += result.attempted
    for name in [*heddle.__all__, "open", "range", "compile"]:
        what = getattr(heddle, name)
        if (inspect.isclass(what) and what.__module__ != "heddle._abi") or inspect.isfunction(what):
            for part, owner in [(name, what)] + [(name + "." + n, m) for n, m in vars(what).items() if n[0] != "_"]:
                documented = callable(owner) or isinstance(owner, property)
                if documented and not inspect.getdoc(owner) and "." in owner.__class__.__name__ + part:
                    print("no docstring: heddle.%s" % part)
                    failed += 1
    print("%d examples in docstrings" % examples)
    return 1 if failed or examples < 20 else 0


sys.exit(main())
