// Command kvpipectl looks at a kvpiped and steers it, over its admin socket.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := execute(ctx, os.Stdout, os.Args[1:]); err != nil {
		complain(os.Stderr, err)
		os.Exit(1)
	}
}
