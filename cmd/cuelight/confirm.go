package main

import (
	"bufio"
	"fmt"
	"strings"

	"golang.org/x/term"
)

// isInteractive reports whether there is a terminal to ask a question on.
func (c *cli) isInteractive() bool {
	f, ok := c.in.(interface{ Fd() uintptr })
	return ok && c.err.IsTerminal && term.IsTerminal(int(f.Fd()))
}

// confirm asks a question whose default answer is no.
func (c *cli) confirm(question string) bool {
	fmt.Fprintf(c.err, "%s [y/N] ", question)
	answered := make(chan string, 1)
	go func() {
		// A read from a terminal cannot be cancelled. The goroutine ends with the next
		// line, or with the process.
		line, _ := bufio.NewReader(c.in).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answered:
		return answer == "y" || answer == "yes"
	case <-c.sig.Ctx.Done():
		fmt.Fprintln(c.err)
		return false
	}
}
