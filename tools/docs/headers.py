"""headers.py - reads the public headers: a page for each, with its declarations and their comments.

The headers of programs are those that include/heddle.h includes, in that order, and include/heddle/mpi.h. The headers of
kernel source are include/heddle/kernel.h and those that it includes. Every header is a Page. Every declaration with a
name is an Entry. cpp.py reads the headers of C++.

A comment belongs to the declaration behind it, and to further ones that follow without an empty line. The comment on a
member or a macro may also follow it. A comment of the form "---- TITLE ----" begins a section. A comment in front of an
empty line is text of its section.
"""

import functools
import os
import re
import subprocess

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"[ \t]*#(?:[^\n\\]|\\\n|\\.)*")
SECTION = re.compile(r"/\*\s*-{4,}\s*(.*?)\s*-{2,}\s*\*/", re.S)
INCLUDED = re.compile(r"^#include <(heddle/\w+\.h)>", re.M)
MARKS = ("HD_BEGIN_DECLS", "HD_END_DECLS")
# The beginnings of names in kernel headers that kernels do not use directly.
INTERNAL = ("HD_ASSERT_FAIL", "HD_ATOMIC_", "HD_CPU_", "HD_KERNEL_GPU", "HD_MATH_", "HD_PP_", "HD_WARP_",
            "hd_cpu_tls_", "hd_half_", "hd_math_", "hd_print_", "hd_warp_cpu_")
PLACEHOLDER = re.compile(r"(?<=_)(?:OP|TYPE|T|W)(?=_|$)")


class Entry:
    """One declaration. kind is function, inline, macro, callback, struct, opaque or enum."""

    def __init__(self, page, kind, name, text, comment, line):
        self.page, self.kind, self.name = page, kind, name
        self.text, self.comment, self.line = text, comment, line
        self.section = None  # the Section that it is in
        self.value = None  # the number of a macro

    def place(self):
        return "%s:%d" % (self.page.path, self.line)


class Section:
    def __init__(self, title):
        self.title, self.texts = title, []


class Page:
    def __init__(self, source, header):
        self.header = header  # for example heddle/lane.h
        self.path = "include/" + header
        self.name = re.sub(r"^heddle/|\.h$", "", header)
        with open(os.path.join(source, self.path), encoding="utf-8") as file:
            self.content = file.read()
        head = TOKEN.match(self.content)
        self.head = lines_of(head.group(0)) if head else [""]
        match = re.match(r"[\w./]+ - (.*)", " ".join(self.head_paragraph()))
        self.summary = match.group(1) if match else ""
        self.sections = [Section(None)]
        self.entries = []
        self.is_kernel_source = self.name.startswith("kernel") and self.name != "kernel_file"
        self.read(head.end() if head else 0)

    def read(self, at):
        Reader(self).read(at)

    def head_paragraph(self):
        return [line.strip() for line in self.head[: len(self.head) - len(self.head_rest())]]

    def head_rest(self):
        return behind_first_paragraph(self.head)

    def title(self):
        """The header's name as a title, spelled as in its head: "Kernel file", "DLPack"."""
        title = self.name.split("/")[-1].replace("_", " ").capitalize()
        spelled = re.findall(r"\b%s\b" % re.escape(title), " ".join(self.head), re.I)
        return next((each for each in spelled if re.match(r"[A-Z].*[A-Z]", each) and (not each.isupper() or each == "MPI")), title)


def behind_first_paragraph(lines):
    return lines[lines.index("") :] if "" in lines else []


def lines_of(comment):
    """The lines of a comment without its marks."""
    lines = comment[2:].removesuffix("*/").split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^\s*\*(?: |$)", "", line).rstrip() for line in lines[1:]]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def without_comments(text):
    return TOKEN.sub(lambda match: " " if match.group(0).startswith("/") else match.group(0), text)


def statement_end(content, at):
    """The end of the declaration at `at`: its semicolon, or the brace that closes a function's body."""
    depth, is_type = 0, content.startswith(("typedef", "struct", "enum"), at)
    for match in re.compile(r'[{}();]|' + TOKEN.pattern, re.S).finditer(content, at):
        mark = match.group(0)
        if mark in "({":
            depth += 1
        elif mark in ")}":
            depth -= 1
            if mark == "}" and depth == 0 and not is_type and "=" not in content[at : match.start()].split("{")[0]:
                return match.end()
        elif mark == ";" and depth == 0:
            return match.end()
    return len(content)


class Reader:
    """Reads the declarations behind the head of a page."""

    def __init__(self, page):
        self.page, self.content = page, page.content
        self.comment, self.used = None, False  # the last comment, and if a declaration followed it
        self.makers = {}  # parameters, body and comment of each macro that makes functions
        self.undefined = set(re.findall(r"^#undef (\w+)", page.content, re.M))  # macros that only the header uses

    def read(self, at):
        steps = (self.blank, self.comment_at, self.directive, self.mark, self.call, self.declaration)
        while at < len(self.content):
            at = next(end for end in (step(at) for step in steps) if end)

    def add(self, kind, name, text, comment, at):
        self.used = True
        entry = Entry(self.page, kind, name, text, comment, self.content.count("\n", 0, at) + 1)
        entry.section = self.page.sections[-1]
        known = next((other for other in self.page.entries if other.name == name), None)
        if known is None:
            self.page.entries.append(entry)
        elif not known.comment:  # the same name in another branch of an #if
            self.page.entries.remove(known)
            self.page.entries.append(entry)
        return entry

    def blank(self, at):
        match = re.compile(r"\s+").match(self.content, at)
        if match and match.group(0).count("\n") > 1 and self.comment is not None:
            if not self.used:
                self.page.sections[-1].texts.append(self.comment)
            self.comment = None
        return match and match.end()

    def comment_at(self, at):
        if not self.content.startswith("/*", at):
            return None
        token = TOKEN.match(self.content, at)
        section = SECTION.fullmatch(token.group(0))
        if section:
            self.page.sections.append(Section(section.group(1)))
            self.comment = None
        elif self.page.entries and self.content[self.content.rfind("\n", 0, at) + 1 : at].strip():
            self.page.entries[-1].comment = lines_of(token.group(0))  # the comment stands behind a declaration
        else:
            self.comment, self.used = lines_of(token.group(0)), False
        return token.end()

    def directive(self, at):
        match = DIRECTIVE.match(self.content, at)
        if not match:
            return None
        end = match.end()
        begun = re.search(r"/\*(?!.*\*/).*$", match.group(0), re.S)  # its comment ends in a later line
        if begun:
            end = self.content.index("*/", at + begun.start()) + 2
        text = self.content[at:end]
        macro = re.match(r"[ \t]*#[ \t]*define (\w+)(\([^)]*\))?", text)
        if macro:
            self.macro(macro, text, at)
        elif not re.match(r"[ \t]*#[ \t]*(?:if|else|endif|elif|undef)", text):
            self.comment = None
        return end

    def macro(self, macro, text, at):
        name, parameters = macro.group(1), macro.group(2) or ""
        if name not in self.undefined:
            behind = re.search(r"/\*.*?\*/\s*$", text, re.S) if "\\\n" not in text else None
            comment = lines_of(behind.group(0)) if behind else self.comment
            self.add("macro", name, name + parameters, comment, at).value = macro_value(text)
        elif "static inline" in text:
            body = text[macro.end() :].replace("\\\n", " ")
            self.makers[name] = ([each.strip() for each in parameters[1:-1].split(",")], body, self.comment)

    def mark(self, at):
        match = re.compile(r'(?:%s)\b|extern "C" \{|\}' % "|".join(MARKS)).match(self.content, at)
        return match and match.end()

    def call(self, at):
        """Reads the call of a macro that makes functions."""
        match = re.compile(r"(\w+)\(([^()]*)\)\n").match(self.content, at)
        if not match or match.group(1) not in self.makers:
            return None
        parameters, body, comment = self.makers[match.group(1)]
        for text in expand(body, parameters, match.group(2)):
            self.add("inline", function_name(text), text, comment, at)
        return match.end()

    def declaration(self, at):
        end = statement_end(self.content, at)
        name, kind = name_of(self.content[at:end])
        if name:
            self.add(kind, name, self.content[at:end], self.comment, at)
        return end


def macro_value(text):
    value = re.match(r"[ \t]*#[ \t]*define \w+[ \t]+(\(?-?[0-9]\w*\)?)[ \t]*(?:/\*.*)?$", text, re.S)
    return value.group(1) if value else None


def expand(body, parameters, arguments):
    """The declarations of functions that a macro makes."""
    for name, value in zip(parameters, [each.strip() for each in arguments.split(",")]):
        body = re.sub(r"(?:##)?\b%s\b(?:##)?" % re.escape(name), value, body)
    for match in re.finditer(r"static inline ([^{}]*?\))\s*\{", body):
        yield re.sub(r"\s+", " ", match.group(1)) + ";"


def function_name(text):
    return re.search(r"(\w+)\s*\(", text).group(1)


def name_of(text):
    """(name, kind) of a declaration; (None, None) if the reference does not need it."""
    code = without_comments(text).strip()
    if code.startswith("HD_API"):
        return function_name(code[len("HD_API") :]), "function"
    if re.match(r"static inline\b", code):
        return function_name(code), "inline"
    if code.startswith("typedef"):
        callback = re.search(r"\(\*(\w+)\)\s*\(", code)
        if callback and "{" not in code.split(callback.group(0))[0]:
            return callback.group(1), "callback"
        name = re.search(r"(\w+)\s*;$", code).group(1)
        if "{" not in code:
            return name, "opaque"
        return name, "enum" if re.match(r"typedef\s+enum", code) else "struct"
    opaque = re.match(r"struct (\w+);$", code)
    return (opaque.group(1), "opaque") if opaque else (None, None)


def file_of(page):
    """The file that Doxygen writes for a page."""
    return "group__%s.html" % page.name.replace("_", "__")


def is_internal(name):
    return name.startswith(INTERNAL)


def is_shown(entry):
    """True if the reference has an entry for it. For kernel source it shows structures; the heads describe the rest."""
    if entry.page.is_kernel_source:
        return entry.kind == "struct" and bool(entry.comment) and not is_internal(entry.name)
    return bool(entry.comment) if entry.kind == "macro" else True


def kernel_names_of(source):
    """The functions, macros and types that kernel source gets from heddle/kernel.h, as a compiler reads the header."""
    command = os.environ.get("CC", "cc").split() + ["-E", "-dD", "-I", os.path.join(source, "include"), "-x", "c", "-"]
    source_text = "#include <heddle/kernel.h>\n"
    done = subprocess.run(command, input=source_text, capture_output=True, text=True, check=True)
    names, ours = set(), False
    for line in done.stdout.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = "heddle/kernel" in marker.group(1)
        elif ours:
            define = re.match(r"#(define|undef) (HD_\w+|hd_\w+)", line)
            if define:
                (names.add if define.group(1) == "define" else names.discard)(define.group(2))
            names.update(re.findall(r"static inline [\w \t]*?\**(hd_\w+)\(", line))
            names.update(re.findall(r"^\} (hd_\w+);", line))
    return sorted(names)


def family_of(name):
    """The pattern of all names that a name with placeholders stands for."""
    parts = PLACEHOLDER.split(name)
    return r"[a-z0-9]+".join(re.escape(part) for part in parts) + (r"\w+" if name.endswith("_") else "")


def names_in_head(page):
    """The names in a head, in full: "hd_T_add(a, b), _sub" has hd_T_add and hd_T_sub."""
    names = []
    for match in re.finditer(r"(?<!\w)(?:(hd_\w+|HD_\w+)|(?<=, )(_\w+))", " ".join(" ".join(page.head).split())):
        if match.group(1):
            names.append(match.group(1))
        elif names:
            end = match.group(2)
            names.append("_".join(names[-1].split("_")[: -end.count("_")]) + end)
    return names


def read_record(path):
    """The names of each kind in the record of a release (tools/check-abi)."""
    found = {kind: set() for kind in ("function", "callback", "structure", "field", "constant", "type")}
    with open(path, encoding="utf-8") as file:
        for line in file:
            kind, _, text = line.strip().partition(" ")
            if kind in ("structure", "field", "constant"):
                found[kind].add(re.match(r"[\w.]+", text).group(0))
            elif kind in ("function", "callback"):
                declared = re.search(r"\(\*(\w+)\)|(\w+)\(", text)
                found[kind].add(declared.group(1) or declared.group(2))
                others = text[: declared.start()] + text[declared.end() :]
                found["type"].update(re.findall(r"\bhd_\w+\b(?!\()", others))
    return found


class Releases:
    """The records of releases, and the coming release."""

    def __init__(self, source):
        with open(os.path.join(source, "include/heddle/version.h"), encoding="utf-8") as file:
            self.now = ".".join(re.findall(r"^#define HD_VERSION_(?:MAJOR|MINOR) (\d+)$", file.read(), re.M))
        folder = os.path.join(source, "tests/abi")
        found = [re.fullmatch(r"heddle-(\d+)\.(\d+)\.txt", name) for name in os.listdir(folder)]
        numbers = sorted((int(match.group(1)), int(match.group(2))) for match in found if match)
        releases = ["%d.%d" % each for each in numbers]
        self.records = [(each, read_record(os.path.join(folder, "heddle-%s.txt" % each))) for each in releases]

    def first(self, kind, name):
        """The first release whose record lists the name; None if no record lists it."""
        return next((release for release, names in self.records if name in names[kind]), None)

    def since(self, entry, constants=()):
        """The release that introduced an entry; None if no record lists it. `constants`: those of an enumeration."""
        kinds = {"function": "function", "callback": "callback", "struct": "structure", "macro": "constant"}
        found = self.first(kinds.get(entry.kind, "type"), entry.name)
        if not found and constants:
            found = min((self.first("constant", name) or self.now for name in constants), key=self.place)
        return found

    def place(self, release):
        """The place of a release among the records; the place behind them if it has no record."""
        releases = [each for each, _ in self.records]
        return releases.index(release) if release in releases else len(releases)

    def dated_text(self, entry, since):
        """The text of a structure or enumeration of release `since`. Comments give the release of younger members."""
        lines = entry.text.split("\n")
        for number, line in enumerate(lines):
            field = re.match(r"    (?:const )?\w+ [^(){};/]*?(\w+)(?:\[\w+\])*;( */\*.*\*/)?$", line)
            constant = re.match(r"    (HD_\w+)(?: = -?\w+)?,?( */\*.*\*/)?$", line)
            member = field or constant
            if not member:
                continue
            name = entry.name + "." + field.group(1) if field else constant.group(1)
            release = self.first("field" if field else "constant", name)
            if release is None or self.place(release) <= self.place(since):
                continue
            above = lines[number - 1]
            if member.group(2):
                lines[number] = re.sub(r"\.? \*/$", "; since %s */" % release, line)
            elif above.endswith(" */") and not re.search(r"[;,]\s*/\*", above):
                lines[number - 1] = re.sub(r"\.? \*/$", "; since %s */" % release, above)
            else:
                lines[number] += " /* since %s */" % release
        return "\n".join(lines)


class Reference:
    """All pages. kernel_pages: the pages of kernel source."""

    def __init__(self, source):
        self.source = source
        self.releases = Releases(source)
        with open(os.path.join(source, "include/heddle.h"), encoding="utf-8") as file:
            text = file.read()
        self.head = lines_of(TOKEN.match(text).group(0))
        self.pages = [Page(source, header) for header in INCLUDED.findall(text) + ["heddle/mpi.h"]]
        kernel = Page(source, "heddle/kernel.h")
        self.kernel_pages = [kernel]
        for header in INCLUDED.findall(kernel.content):
            self.kernel_pages.append(Page(source, header))
        self.statuses = self.read_statuses()

    def all_pages(self):
        return self.pages + self.kernel_pages

    def read_statuses(self):
        """(name, value, text) of each status, such as ("OK", "0", "success")."""
        for page in self.pages:
            found = re.findall(r'^    X\((\w+), (-?\d+), "(.*?)"\)', page.content, re.M)
            if found:
                return found
        return []

    def kernel_families(self):
        """(pattern, page) of all names that the heads of kernel headers describe."""
        return [(re.compile(family_of(name)), page) for page in self.kernel_pages for name in names_in_head(page)]

    def constants_of(self, entry):
        if entry.kind != "enum":
            return []
        if entry.name == "hd_status":
            return ["HD_" + name for name, _, _ in self.statuses]
        without_conditions = re.sub(r"^#.*$", "", without_comments(entry.text), flags=re.M)
        return re.findall(r"\bHD_\w+", without_conditions)

    def since(self, entry):
        """The release that introduced an entry, by the records. For a new function, the coming one. None: unknown."""
        recorded = self.releases.since(entry, self.constants_of(entry))
        return recorded or (self.releases.now if entry.kind == "function" else None)

    def text(self, entry):
        """The declaration. Comments give the release of younger members of a structure or an enumeration."""
        return self.releases.dated_text(entry, self.since(entry)) if entry.kind in ("struct", "enum") else entry.text

    def names_of(self, page):
        """All names on the page of a header."""
        shown = [entry for entry in page.entries if is_shown(entry)]
        return [name for entry in shown for name in [entry.name] + self.constants_of(entry)]

    @functools.cached_property
    def status_words(self):
        """ARGUMENT for HD_ERROR_ARGUMENT, and so on."""
        return {name.removeprefix("ERROR_"): "HD_" + name for name, _, _ in self.statuses if name.startswith("ERROR_")}
