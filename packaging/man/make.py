#!/usr/bin/env python3
"""Write the man pages, from include/kvpipe.h, packaging/kvpiped.toml and what the programs say of themselves.

usage: packaging/man/make.py FOLDER-OF-PROGRAMS FOLDER VERSION EPOCH
"""

import sys
import time
from pathlib import Path

import commands
import library
import settings


def main():
    programs, out, version, epoch = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    texts, links = library.pages(date, version)
    texts.update(settings.page(date, version))
    texts.update(commands.daemon(programs, date, version))
    texts.update(commands.ctl(programs, date, version))
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text)
    for name, target in links.items():
        (out / name).symlink_to(target)


if __name__ == "__main__":
    main()
