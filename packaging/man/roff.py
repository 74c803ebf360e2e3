"""Writing man pages: what is special to roff is escaped, what is a name is bold."""

import re
import textwrap

# What reads as a reference: our functions, our other pages, flags, and constants of the header.
_NAMES = re.compile(
    r"(?P<page>\b(?:kvpiped|kvpipectl)\b(?:\.toml)?(?=\(\d\)))|(?P<call>\bkvpipe_\w+)(?P<parens>\(\))"
    r"|(?P<bold>\bKVPIPE_[A-Z_0-9]+\*?|(?<![\w-])--[a-z][a-z-]*)"
)


def escape(text):
    """text with nothing left in it that roff would take for a command or change into another character."""
    for char, name in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("^", "\\(ha"), ("~", "\\(ti"), ("`", "\\(ga")):
        text = text.replace(char, name)
    return text


def _line(text):
    """A line of input that is none of roff's commands."""
    return "\\&" + text if text.startswith((".", "'")) else text


def inline(text):
    """A sentence or several, with names in bold. Dashes within words may break; those of flags may not."""
    out, end = [], 0
    for match in _NAMES.finditer(text):
        out.append(_prose(text[end:match.start()]))
        if match["call"]:
            out.append(f"\\fB{escape(match['call'])}\\fP(3)")
        else:
            out.append(f"\\fB{escape(match[0])}\\fP")
        end = match.end()
    out.append(_prose(text[end:]))
    return "".join(out)


def _prose(text):
    return re.sub(r"(?<=\w)\\-(?=\w)", "-", escape(text))


def fill(text):
    """Prose as lines of input, none of which begins with a control character."""
    lines = textwrap.wrap(" ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False)
    return [_line(inline(line)) for line in lines]


def verbatim(lines):
    """Lines as they are: code, tables, shell sessions."""
    text = textwrap.dedent("\n".join(line.expandtabs(8) for line in lines)).split("\n")
    return [".RS 4", ".EX", *(_line(escape(line)) for line in text), ".EE", ".RE"]


def bullet(text):
    return [r".IP \(bu 2", *fill(text)]


def page(name, section, title, date, version, body):
    """The whole page. body: lines of roff from NAME on."""
    head = [
        ".\\\" Made from the sources; changes belong there.",
        f'.TH {name.upper()} {section} "{date}" "kvpipe {version}" "{title}"',
        ".nh",
        ".ad l",
    ]
    # A heading begins a paragraph by itself.
    kept = [line for before, line in zip(["", *body], body) if line != ".PP" or not before.startswith((".SH", ".SS"))]
    return "\n".join(head + kept) + "\n"


def name(names, what):
    return [".SH NAME", escape(", ".join(names)) + " \\- " + inline(what)]


def see_also(pages):
    """pages: [("kvpiped", 8), ...]"""
    rows = [f".BR {escape(page)} ({section})" + ("," if i + 1 < len(pages) else "") for i, (page, section) in enumerate(pages)]
    rows = [row.replace("),", ") ,").replace(") ,", "),") for row in rows]
    return [".SH SEE ALSO", *rows]
