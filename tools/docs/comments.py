"""comments.py - reads the text of a comment into parts, and these into blocks.

A comment is a description and titled parts, such as "Errors: ..." and "Threads: ...". TITLES lists the titles.
A part begins with its title, at the start of a line or of a sentence. It ends with the next part or an empty line.
Behind an empty line the description continues.

A part is a list of blocks:
  - ("text", TEXT)                  a paragraph
  - ("list", [TEXT...])             entries that begin with "- "
  - ("terms", [(TERM, TEXT)...])    entries, or indented lines, in two columns with two blanks or more between them
  - ("code", TEXT)                  other indented lines
"""

import re

TITLES = ("Always", "Blocking", "Errors", "Fork", "Guarantee", "Language", "Locks", "Order", "Threads")
TITLE = re.compile(r"(?:^|(?<=[.:;)] ))(%s):(?: (?=\S)|$)" % "|".join(TITLES))
ENTRY = re.compile(r"( *)- (.*)")
GAP = re.compile(r"(?<=\S)( {2,})(?=\S)")
STATUS = r"[A-Z][A-Z_]{2,}"
INLINE = re.compile(
    r"`(?P<code>[^`]+)`"
    r"|(?<![\w*])\*(?=\w)(?P<emphasis>[^*`]*\w)\*(?![\w*])"
    r"|(?P<file>heddle/\w+\.h|heddle/cpp/\w+\.hpp)\b"
    r"|(?P<name>[A-Za-z_]\w*(?:\(\))?)"
    r"|(?P<text>\w+|::|-{2,3}|`|[^\w`])", re.S)


def inline(text):
    """(kind, text) of each piece of running text. The kinds are the groups of INLINE. A name may end with "()"."""
    for match in INLINE.finditer(re.sub(r"\s+", " ", text)):
        yield match.lastgroup, match.group(match.lastgroup)


def indentation(line):
    return len(line) - len(line.lstrip(" "))


def parts_of(lines):
    """(title, blocks) of each part, in order. The description has the title ""."""
    parts, title, begun = [], "", []
    for line in lines:
        if title and not line.strip():
            parts.append((title, blocks_of(begun)))
            title, begun = "", []
        at = 0
        for match in TITLE.finditer(line):
            if indentation(line) > 0:
                break
            before = line[at : match.start()].rstrip()
            if before:
                begun.append(before)
            if begun or title:
                parts.append((title, blocks_of(begun)))
            title, begun, at = match.group(1), [], match.end()
        begun.append(line[at:])
    parts.append((title, blocks_of(begun)))
    return [(each, blocks) for each, blocks in parts if each or blocks]


def part_of(lines, title):
    """The blocks of a part, or of the description; [] if there is none."""
    return [block for each, blocks in parts_of(lines) if each == title for block in blocks]


def blocks_of(lines):
    blocks, at = [], 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif ENTRY.fullmatch(line) and indentation(line) > 0:
            at, block = read_list(lines, at)
            blocks.append(block)
        elif indentation(line) >= 3:
            at, block = read_indented(lines, at)
            blocks.append(block)
        else:
            first = at
            while at < len(lines) and lines[at].strip() and (at == first or indentation(lines[at]) == 0):
                at += 1
            blocks.append(("text", " ".join(each.strip() for each in lines[first:at])))
    return blocks


def read_list(lines, at):
    """Reads all entries of a list, and the terms if each entry begins with a term."""
    depth, entries = indentation(lines[at]), []
    while at < len(lines) and indentation(lines[at]) >= depth and lines[at].strip():
        entry = ENTRY.fullmatch(lines[at])
        if entry and len(entry.group(1)) == depth:
            entries.append([entry.group(2)])
        else:
            entries[-1].append(lines[at].strip())
        at += 1
    terms = []
    for entry in entries:
        gap = GAP.search(entry[0])
        if gap:
            terms.append((entry[0][: gap.start()], " ".join([entry[0][gap.end() :]] + entry[1:])))
    if len(terms) == len(entries):
        return at, ("terms", terms)
    return at, ("list", [" ".join(entry) for entry in entries])


def read_indented(lines, at):
    first = at
    while at < len(lines) and (not lines[at].strip() or indentation(lines[at]) >= 3):
        at += 1
    taken = lines[first:at]
    while not taken[-1].strip():
        taken.pop()
    depth = min(indentation(line) for line in taken if line.strip())
    taken = [line[depth:] for line in taken]
    if any(GAP.search(line) for line in taken) and not re.search(r"[{}]$", "\n".join(taken), re.M):
        return at, ("terms", read_terms(taken))
    return at, ("code", "\n".join(taken))


def read_terms(lines):
    """The rows of a table. The second column begins in the same place in all rows between two empty lines."""
    rows, column = [], 0
    for number, line in enumerate(lines):
        if not line.strip():
            column = 0
            continue
        if column == 0:
            here = lines[number:]
            here = here[: here.index("")] if "" in here else here
            ends = [gap.end() for each in here for gap in GAP.finditer(each)]
            column = max(ends, key=ends.count) if ends else 0
        if column and indentation(line) >= column:
            rows[-1] = (rows[-1][0], (rows[-1][1] + " " + line.strip()).strip())
        elif column and len(line) > column and line[column - 1] == " ":
            rows.append((line[:column].strip(), line[column:].strip()))
        else:
            rows.append((line.strip(), ""))
    return rows


def first_sentence(text):
    """(first sentence, rest)."""
    match = re.search(r"(?<=[.!?])[\")]*\s+(?=[\"(*`A-Z0-9]|hd_)", text)
    return (text[: match.start()], text[match.end() :]) if match else (text, "")


def capital(text):
    """The text with a capital letter at its beginning, unless it begins with a name of code."""
    word = re.match(r"[a-z][a-z'-]*(?![\w(])", text)
    return text[0].upper() + text[1:] if word else text


def with_capital(blocks):
    """Gives the first text of a part a capital letter: it followed the title in its sentence."""
    kind, content = blocks[0]
    return [(kind, capital(content))] + blocks[1:] if kind == "text" else blocks


def split_outside(text):
    """The pieces between commas and semicolons that are in no parentheses or quotes."""
    pieces, depth, start, quoted = [], 0, 0, False
    for at, mark in enumerate(text):
        quoted ^= mark == '"'
        depth += 0 if quoted else {"(": 1, ")": -1}.get(mark, 0)
        if mark in ",;" and depth == 0 and not quoted:
            pieces.append(text[start:at].strip())
            start = at + 1
    return pieces + [text[start:].strip()]


def errors_of(text):
    """([(statuses, reason)...], rest) of the text of a part "Errors:". A piece may have no statuses: "as hd_open".

    Neighbours without a reason are one entry.
    """
    listed, rest = first_sentence_outside(text)
    found = []
    for piece in split_outside(listed.removesuffix(".")):
        match = re.fullmatch(r"(?:and )?((?:%s)(?: or %s)*)(?: \((.*)\)| (when .*))?" % (STATUS, STATUS), piece, re.S)
        words = match.group(1).split(" or ") if match else []
        reason = (match.group(2) or match.group(3) or "") if match else piece
        if not words and found and not piece.startswith("as ") and re.match(r"[a-z]", piece):
            found[-1] = (found[-1][0], "; ".join(each for each in (found[-1][1], piece) if each))
        elif words and not reason and found and found[-1][0] and not found[-1][1]:
            found[-1] = (found[-1][0] + words, "")
        else:
            found.append((words, reason))
    return found, rest


def first_sentence_outside(text):
    """(first sentence, rest). A period in parentheses ends no sentence."""
    depth = 0
    for at, mark in enumerate(text):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if mark == "." and depth == 0 and (at + 1 == len(text) or re.match(r"\s+[A-Z`*]", text[at + 1 :])):
            return text[: at + 1], text[at + 1 :].strip()
    return text, ""
