/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that need a process of their own. Such a test forks before it has threads, which might be anywhere at that moment. */
#ifndef CHILD_H
#define CHILD_H

#include "check.h"

#include <kvpipe.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void in_child(void (*run)(void), bool nobody)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		uid_t own = 20000 + (uid_t)getpid() % 40000; /* no limit for a user counts what another test does at the same time */

		if (nobody && geteuid() == 0)
			CHECK(setgid(65534) == 0 && setuid(own) == 0);
		run();
		fflush(NULL);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 0);
}

/* In a child of a user of its own, because root may do everything. */
static inline void as_nobody(void (*run)(void)) { in_child(run, true); }

#endif
