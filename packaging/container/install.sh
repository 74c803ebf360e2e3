#!/bin/sh
# What Containerfile does inside the image: installs the packages beside this file.
set -e
cd "$(dirname "$0")"

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# systemd makes the user; its small programs do, without the rest of it.
apt-get install -q -y --no-install-recommends systemd-standalone-sysusers systemd-standalone-tmpfiles ./*.deb
rm -rf /var/lib/apt/lists/*
kvpiped --version
