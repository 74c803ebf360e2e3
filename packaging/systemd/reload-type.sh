#!/bin/sh
# Makes "systemctl reload kvpiped" wait for the daemon where systemd knows
# services of Type=notify-reload, which it does from version 253 on. Run it after
# installation, when systemd itself may be of any version, and with "remove"
# before removal. The folder may hold drop-ins of others. DESTDIR: another root.
set -e
folder=${DESTDIR-}/usr/lib/systemd/system/kvpiped.service.d
version=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
if [ "${1-}" != remove ] && [ "${version:-0}" -ge 253 ]; then
	install -D -m 644 "${DESTDIR-}/usr/share/kvpipe/notify-reload.conf" "$folder/notify-reload.conf"
else
	rm -f "$folder/notify-reload.conf"
	rmdir "$folder" 2>/dev/null || true
fi
