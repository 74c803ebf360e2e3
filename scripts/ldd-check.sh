#!/usr/bin/env bash
# Fails when a program or library below the given folders would not load: a
# library or a symbol that nothing provides; and when a folder has neither. libkvpipe may need the C library only.
#
# Programs with go-nvml in them are linked with --unresolved-symbols=ignore-in-object-files,
# for NVML's functions, which come with the driver at run time. So the linker lets
# every other undefined symbol of theirs pass as well, and this is who notices.
set -eu

bad=0
for folder in "$@"; do
	[ -n "$(find "$folder" -type f -print -quit)" ] || { echo "ldd-check: there is nothing in $folder" >&2; bad=1; }
done
while IFS= read -r -d '' file; do
	head -c 4 "$file" | grep -q ELF || continue
	out=$(ldd -r "$file" 2>&1) || case $out in
	*'not a dynamic executable'* | *'statically linked'*) continue ;;
	esac
	if problems=$(grep -E 'not found|undefined symbol|symbol lookup error|not defined' <<<"$out" | grep -vE 'undefined symbol: nvml[A-Z]'); then
		printf '%s:\n%s\n' "$file" "$problems" >&2
		bad=1
	fi
	case $file in
	*/libkvpipe.so*)
		if extra=$(objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }' | grep -vE '^(libc\.so|ld-linux)'); then
			printf '%s: links more than the C library: %s\n' "$file" "$extra" >&2
			bad=1
		fi
		;;
	esac
done < <(find "$@" -type f \( -perm -u+x -o -name '*.so*' \) -print0 2>/dev/null)
exit $bad
