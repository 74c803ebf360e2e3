"""kvpiped.8 and kvpipectl.1: what the programs say of themselves, between what is written here."""

import re
import subprocess
from pathlib import Path

import roff


def ask(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def daemon_flags(program):
    """[(flag, argument, meaning)] of a program that uses Go's package flag."""
    found = []
    for match in re.finditer(r"^  -(\S+)(?: (\S+))?\n    \t(.*)$", ask(program, "--help"), re.M):
        found.append((f"--{match[1]}", match[2] or "", match[3]))
    return found


def daemon(bin_folder, date, version):
    options = []
    for flag, argument, meaning in daemon_flags(bin_folder / "kvpiped"):
        options += [".TP", f"\\fB{roff.escape(flag)}\\fP" + (f" \\fI{roff.escape(argument)}\\fP" if argument else ""), *roff.fill(meaning)]
    text = Path("packaging/man/kvpiped.8.in").read_text()
    for word, value in (("OPTIONS", "\n".join(options)), ("DATE", date), ("VERSION", version)):
        text = text.replace(f"@{word}@", value)
    return {"kvpiped.8": text}


class Help:
    """What `kvpipectl help COMMAND` says, in its parts."""

    def __init__(self, program, words):
        self.words = words
        text = ask(program, "help", *words)
        self.about, _, rest = text.partition("\nUsage:\n")
        self.usage = rest.split("\n", 1)[0].strip().replace(" [flags]", "")
        self.flags = self._flags(rest, "Flags:")
        self.flags_of_all = self._flags(rest, "Global Flags:")
        self.examples = self._block(rest, "Examples:")
        self.commands = [row.split()[0] for row in self._block(rest, "Available Commands:")]

    @staticmethod
    def _block(text, title):
        match = re.search(rf"^{title}\n((?:.+\n?)+)", text, re.M)
        return match[1].rstrip("\n").split("\n") if match else []

    def _flags(self, text, title):
        found = []
        for row in self._block(text, title):
            match = re.match(r"\s+(?:(-\w), )?(--[\w-]+)(?: (\S+))?\s{2,}(.*)$", row)
            if match and match[2] != "--help":
                found.append(match.groups())
        return found


def tree(program, words=()):
    """All commands, depth first; cobra's own help command is none of ours."""
    here = Help(program, words)
    yield here
    for command in here.commands:
        if command != "help":
            yield from tree(program, (*words, command))


def flags(rows):
    out = []
    for short, long, argument, meaning in rows:
        head = ", ".join(f"\\fB{roff.escape(flag)}\\fP" for flag in (short, long) if flag)
        out += [".TP", head + (f" \\fI{roff.escape(argument)}\\fP" if argument else ""), *roff.fill(meaning)]
    return out


def ctl(bin_folder, date, version):
    root, *commands = tree(bin_folder / "kvpipectl")
    of_all = commands[0].flags_of_all  # to its own help, the root's others look like these
    body = roff.name(["kvpipectl"], "inspect and control kvpiped, make certificates")
    body += [
        ".SH SYNOPSIS", r"\fBkvpipectl\fP \fICOMMAND\fP [\fIFLAGS\fP]",
        ".SH DESCRIPTION",
        *roff.fill("kvpipectl talks to the kvpiped of this node over its admin socket, which is for the daemon's user and root. "
                   "The certs commands need no daemon."),
        ".SH COMMANDS",
    ]
    for command in commands:
        if command.commands or command.words[0] == "completion":
            continue
        body += [f".SS {roff.escape(command.usage)}"]
        first = True
        for paragraph in command.about.strip().split("\n"):
            body += ([] if first else [".br"]) + roff.fill(paragraph)
            first = False
        body += flags(command.flags)
        body += roff.verbatim(command.examples) if command.examples else []
    body += [
        ".SS kvpipectl completion bash|zsh|fish|powershell",
        *roff.fill("Completion for a shell. Packages install those of the first three."),
        ".SH FLAGS OF ALL COMMANDS", *flags(of_all),
        ".SH FLAGS WITHOUT A COMMAND", *flags([row for row in root.flags if row not in of_all]),
        ".SH ENVIRONMENT", ".TP", ".B KVPIPE_ADMIN", "The admin socket.",
        ".TP", ".B KVPIPE_SOCKET", "The socket for engines; the admin socket is looked for beside it, unless it is named.",
        ".SH FILES", ".TP", ".I /run/kvpipe/admin.sock", "The admin socket of the node's daemon.",
        ".SH EXIT STATUS", "0, or 1 with one line that says what was wrong and what to do.",
    ]
    body += roff.see_also([("kvpiped", 8), ("kvpiped.toml", 5), ("kvpipe", 3)])
    return {"kvpipectl.1": roff.page("kvpipectl", 1, "User commands", date, version, body)}
