#include "serve.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void serve_error(const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fputs("{\"error\":\"", stdout);
	for (const unsigned char *p = (unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			putchar('\\');
		if (*p < ' ')
			printf("\\u%04x", *p);
		else
			putchar(*p);
	}
	puts("\"}");
	fflush(stdout);
}

void serve_loop(const char *name, serve_run run, void *ctx)
{
	char line[512];
	printf("{\"ref\":\"%s\",\"ready\":true}\n", name);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (strcmp(line, "quit") == 0)
			return;
		if (strncmp(line, "run", 3) == 0 &&
		    (line[3] == 0 || line[3] == ' '))
			run(ctx, line + 3);
		else
			serve_error("unknown command \"%s\", want run or quit", line);
		fflush(stdout);
	}
}

bool arg_text(const char *args, const char *key, char *buf, size_t size)
{
	size_t klen = strlen(key);
	for (const char *p = args; *p;) {
		p += strspn(p, " ");
		size_t len = strcspn(p, " ");
		if (len > klen && strncmp(p, key, klen) == 0 && p[klen] == '=') {
			size_t vlen = len - klen - 1;
			if (vlen >= size)
				return false;
			memcpy(buf, p + klen + 1, vlen);
			buf[vlen] = 0;
			return true;
		}
		p += len;
	}
	return false;
}

long arg_long(const char *args, const char *key, long fallback)
{
	char buf[32];
	if (!arg_text(args, key, buf, sizeof buf))
		return fallback;
	return strtol(buf, NULL, 10);
}
