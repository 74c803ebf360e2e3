#!/bin/sh
# kvpiped has "systemctl reload" wait for it, from systemd 253 on, which knows
# services of Type=notify-reload. Run after installation, when systemd itself
# may be of any version. DESTDIR: another root.
set -e
dropin=${DESTDIR-}/usr/lib/systemd/system/kvpiped.service.d/notify-reload.conf
version=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
if [ "${version:-0}" -ge 253 ]; then
	mkdir -p "${dropin%/*}"
	cp "${DESTDIR-}/usr/share/kvpipe/notify-reload.conf" "$dropin"
else
	rm -rf "${dropin%/*}"
fi
