/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that need a process of their own. Such a test forks before it has threads, which might be anywhere at that moment. */
#ifndef CHILD_H
#define CHILD_H

#include "check.h"

#include <kvpipe.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

/* user: of the child, if this is root, who may do everything; 0: the same. */
static inline void in_child(void (*run)(void), uid_t user)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		if (user != 0 && geteuid() == 0)
			CHECK(setgid(65534) == 0 && setuid(user) == 0);
		run();
		fflush(NULL);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 0);
}

static inline void as_nobody(void (*run)(void)) { in_child(run, 65534); }

/* A limit for a user counts what other tests do at the same time as nobody. */
static inline void as_somebody(void (*run)(void)) { in_child(run, 20000 + (uid_t)getpid() % 40000); }

#endif
