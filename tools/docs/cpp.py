"""cpp.py - reads the C++ headers: a page for each header of include/heddle/cpp, with its classes and functions.

A page's entries are the public declarations outside of namespace detail: classes, aliases, functions of namespace hd,
and public functions of classes. The members of a class follow it, and belong to it (Entry.owner).

A comment belongs to the declaration behind it, and to an overload with the same name. A member that its class declares
without a comment takes the comment of its definition in another header, such as that of runtime_ref::create_lane in
heddle/cpp/lane.hpp. Constructors, destructors, operators, aliases in classes, and the function `end`, which an owner
calls, need no comment.

The beginning of a comment names the functions of C that the C++ function calls (Entry.calls); otherwise its body does.
The reference repeats their errors.
"""

import re

import headers

INCLUDED = re.compile(r"^#include <(heddle/cpp/\w+\.hpp)>", re.M)
CALL = re.compile(r"\b(hd_\w+)\(")
NAMED = re.compile(r"hd_\w+(?:(?:, | and | or )hd_\w+)*\b")  # at the beginning of a comment
KEPT = ("HD_CPP_THROWS", "__cpp_exceptions")  # conditions that hold for the reference; all others do not


def without_conditions(text):
    """The text in which directives, and branches that the reference does not show, are blank lines."""
    lines, branches = text.split("\n"), []
    for number, line in enumerate(lines):
        directive = re.match(r"\s*#\s*(if|ifdef|ifndef|else|endif)\b(.*)", line)
        if directive and directive.group(1) == "else":
            branches[-1] = not branches[-1]
        elif directive and directive.group(1) == "endif":
            branches.pop()
        elif directive:
            branches.append(directive.group(2).strip() in KEPT)
        if directive or not all(branches):
            lines[number] = ""
    return "\n".join(lines)


class Entry:
    """kind is class, alias, function or special. name is qualified, such as lane_ref::wait."""

    def __init__(self, page, kind, name, text, comment, line):
        self.page, self.kind, self.name, self.text = page, kind, name, text
        self.comment, self.line, self.section = comment, line, None
        self.owner, self.members, self.calls = None, [], []

    def place(self):
        return "%s:%d" % (self.page.path, self.line)

    def anchor(self):
        return "%s_hd_%s" % (group_of(self.page), re.sub(r"\W+", "_", self.name))


class Page(headers.Page):
    """The page of a C++ header."""

    def read(self, at):
        self.definitions = []  # functions of classes that another header declares
        self.name = self.name.removesuffix(".hpp")
        begin, end = self.content.find("HD_CPP_BEGIN\n\n"), self.content.rfind("HD_CPP_END")
        text = "\n" * self.content.count("\n", 0, begin) + self.content[begin + len("HD_CPP_BEGIN") : end]
        Reader(self, without_conditions(text)).scope(0, None)


class Reader:
    def __init__(self, page, text):
        self.page, self.text = page, text

    def end_of(self, at):
        """(begin of the body or None, end) of the declaration at `at`."""
        depth, body = 0, None
        for match in re.compile(r"[{}();]|" + headers.TOKEN.pattern, re.S).finditer(self.text, at):
            mark = match.group(0)
            if mark == "{" and depth == 0 and body is None:
                body = match.start()
            depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(mark, 0)
            if mark == ";" and depth == 0 or mark == "}" and depth == 0 and not self.goes_on(at, body, match.end()):
                return body, match.end()
            if mark == "}" and depth == 0:
                body = body if self.is_type(at) else None
        return body, len(self.text)

    def is_type(self, at):
        return bool(re.compile(r"(?:template <[^;{]*?> )?(?:class|struct)\b").match(self.text, at))

    def goes_on(self, at, body, end):
        """True if a brace ends an initialiser, not the body of a function."""
        after = self.text[end : end + 40].lstrip()
        return self.is_type(at) or after.startswith((";", "{", ","))

    def scope(self, at, owner):
        """Reads the declarations of a namespace or of a class up to its closing brace."""
        comment, public, last = None, owner is None or owner.text.startswith("struct"), None
        while at < len(self.text):
            blank = re.compile(r"\s+").match(self.text, at)
            if blank:
                at, comment = blank.end(), None if blank.group(0).count("\n") > 1 else comment
            elif self.text.startswith("}", at):
                return at
            elif self.text.startswith("/*", at):
                token = headers.TOKEN.match(self.text, at)
                section = headers.SECTION.fullmatch(token.group(0)) or re.match(r"/\* -{4} (.*?) -{4}", token.group(0))
                comment = None if section else headers.lines_of(token.group(0))
                at = token.end()
            elif re.compile(r"(?:public|private|protected):").match(self.text, at):
                public = self.text.startswith("public", at)
                at = self.text.index(":", at) + 1
            else:
                entries = owner.members if owner else self.page.entries
                count = len(entries)
                at = self.declaration(at, owner, comment if public else None, public)
                if len(entries) > count:
                    if entries[-1].comment is None and last and last.name == entries[-1].name:
                        entries[-1].comment = last.comment
                    last, comment = entries[-1], None
        return at

    def declaration(self, at, owner, comment, public):
        body, end = self.end_of(at)
        head = re.sub(r"\s+", " ", headers.without_comments(self.text[at : body or end])).strip().rstrip(";").strip()
        nested = re.match(r"(?:inline )?namespace (\w+)", head)
        if nested or not public or re.match(r"(?:friend|static_assert|inline constexpr|constexpr expected)\b", head):
            return self.text.find("\n", end) + 1 if nested else end
        line = self.text.count("\n", 0, at) + 1
        types = re.match(r"(template <.*?> )?(class|struct) (?:\[\[nodiscard\]\] )?(\w+)([^:]*)", head)
        if types and body:
            text = "%s%s %s%s" % (types.group(1) or "", types.group(2), types.group(3), types.group(4).strip())
            self.scope(body + 1, self.add("class", types.group(3), text, comment, line, owner))
            return end
        alias = re.match(r"(?:template <.*?> )?using (\w+) = ", head)
        if types or (head.startswith(("using", "template")) and "using" in head and not alias):
            return end  # a declaration without a definition, or a name of another class
        if alias:
            self.add("special" if owner else "alias", alias.group(1), head, comment, line, owner)
            return end
        self.function(head, self.text[body:end] if body else "", comment, line, owner)
        return end

    def add(self, kind, name, text, comment, line, owner):
        entry = Entry(self.page, kind, "%s::%s" % (owner.name, name) if owner else name, text, comment, line)
        entry.owner = owner
        (owner.members if owner else self.page.entries).append(entry)
        return entry

    def function(self, head, body, comment, line, owner):
        head = re.sub(r"\[\[\w+\]\] |__attribute__\(\(.*?\)\)+ |HD_CPP_INLINE |\binline ", "", head)
        signature = re.search(r"((?:\w+::)?(?:operator\s*(?:\(\)|[^\s(]+(?: \w+)?)|~?\w+))\s*\(", head)
        if not signature:
            return  # a field
        name = signature.group(1)
        head = re.sub(r"(\) (?:const )?(?:noexcept )?): .*$", r"\1", head).strip()  # without initialisers of members
        plain = name.split("::")[-1]
        is_end = head.startswith("static hd_status end(")
        special = owner and (plain.lstrip("~") == owner.name or re.match(r"operator\b", plain) or is_end)
        calls = list(dict.fromkeys(CALL.findall(body)))
        if "::" in name and not owner:
            self.page.definitions.append((name, comment, calls))
            return
        entry = self.add("special" if special else "function", name, head, comment, line, owner)
        entry.calls = calls


def pages_of(source):
    """The pages of all C++ headers, in the order of include/heddle.hpp; heddle/cpp/mpi.hpp is the last one."""
    with open(source + "/include/heddle.hpp", encoding="utf-8") as file:
        names = INCLUDED.findall(file.read())
    pages = [Page(source, name) for name in names + ["heddle/cpp/mpi.hpp"]]
    members = [member for page in pages for entry in page.entries for member in entry.members]
    for page in pages:
        for name, comment, calls in page.definitions:
            for member in members:
                if member.name == name and not member.comment:
                    member.comment, member.calls = comment, calls
                    break
    for entry in (each for page in pages for each in entries_of(page)):
        named = NAMED.match(" ".join(entry.comment or []))
        entry.calls = re.findall(r"hd_\w+", named.group(0)) if named else entry.calls
    return pages


def file_of(page):
    """The file that Doxygen writes for a page."""
    return "group__%s.html" % group_of(page).replace("_", "__")


def group_of(page):
    return page.name.replace("/", "_")


def is_shown(entry):
    return entry.kind != "special" or bool(entry.comment)


def entries_of(page):
    """All entries of a page, each class in front of its members."""
    return [each for entry in page.entries for each in [entry] + entry.members]
