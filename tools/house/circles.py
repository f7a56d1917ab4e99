"""circles.py - finds the circles among the files of a folder, for tools/check-house.

A file uses another one if its code names an external function or variable of that file. Code that the file gets from
inline functions and macros counts as its own code. For the engine this finds the same uses as `nm` in the objects of
a debug build. It does not see functions that a macro makes.

A circle is a set of files in which each file uses each other one, directly or through further files of the folder.
Sets are as large as possible.
"""

import re

TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
NAME = re.compile(r"[A-Za-z_]\w*")
# Of variables at the file's outermost level: an array, or something with a value, or a word of a type in front.
VARIABLE = re.compile(r"^(?!static|extern|typedef|return|struct \w+ \{|enum|#)[A-Za-z_][\w *]*[ *](\w+)(?:\[[^\]]*\])*(?: =|;)", re.M)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.M)


def code_of(content):
    """The code without comments and texts, with the same lines."""
    return re.sub(r"[ \t]+$", "", TOKEN.sub(lambda match: "\n" * match.group(0).count("\n") or " ", content), flags=re.M)


def pieces(code, functions_of):
    """(name, body) of each macro and each static function, which other files may include."""
    for match in MACRO.finditer(code):
        yield match.group(1), match.group(2)
    lines = code.split("\n")
    for name, first, length, static in functions_of(code):
        if static:
            yield name, "\n".join(lines[first - 1 : first - 1 + length])


def names_in(code, shared):
    """The names in the code, and in the shared pieces that it names."""
    names, left = set(), NAME.findall(code)
    while left:
        name = left.pop()
        if name not in names:
            names.add(name)
            left += shared.get(name, ())
    return names


def uses(files, headers, functions_of):
    """{file: {used file: names}}, of {path: content} of C files and of the headers."""
    shared, owner, code = {}, {}, {}
    for content in headers.values():
        for name, body in pieces(code_of(content), functions_of):
            shared.setdefault(name, set()).update(NAME.findall(body))
    for path, content in files.items():
        code[path] = code_of(content)
        owner.update((name, path) for name, _, _, static in functions_of(code[path]) if not static)
        owner.update((name, path) for name in VARIABLE.findall(code[path]))
    found = {path: {} for path in files}
    for path in files:
        for name in names_in(code[path], shared):
            if owner.get(name, path) != path:
                found[path].setdefault(owner[name], set()).add(name)
    return found


def reached(found, start):
    seen, left = set(), [start]
    while left:
        for path in found[left.pop()]:
            if path not in seen:
                seen.add(path)
                left.append(path)
    return seen


def circles(found):
    """The circles, the largest one first. Each is a sorted list of files."""
    reach = {path: reached(found, path) for path in found}
    sets = {tuple(sorted(other for other in reach[path] if path in reach[other])) for path in found if path in reach[path]}
    return sorted(map(list, sets), key=lambda circle: (-len(circle), circle))
