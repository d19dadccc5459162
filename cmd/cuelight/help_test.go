package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/usererr"
)

// allCommands returns all commands of the program.
func allCommands() (all []*cobra.Command) {
	c := &cli{out: &console.Stream{}, err: &console.Stream{}}
	next := []*cobra.Command{c.rootCommand()}
	for len(next) > 0 {
		all = append(all, next[0])
		next = append(next[1:], next[0].Commands()...)
	}
	return all
}

func TestHelp_HasNoLongLines(t *testing.T) {
	t.Parallel()
	for _, cmd := range allCommands() {
		for line := range strings.Lines(cmd.Long) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
				t.Errorf("%s has a line of %d characters: %s", cmd.CommandPath(), n, line)
			}
		}
	}
}

func TestHelp_HidesFlagsThatACommandDoesNotUse(t *testing.T) {
	t.Parallel()
	for _, cmd := range allCommands() {
		all := []string{"config", "database-url", "local-dir", "data-dir"}
		isHidden := map[string][]string{
			"work": {"database-url", "local-dir"}, "version": all, "conformance": all,
			"completion": all, "completion bash": all, "completion fish": all, "completion zsh": all,
			"config check": all, "config example": all, "man": all,
		}[strings.TrimPrefix(cmd.CommandPath(), "cuelight ")]
		usage := cmd.UsageString()
		for _, name := range isHidden {
			if strings.Contains(usage, "--"+name+" ") {
				t.Errorf("%s shows --%s", cmd.CommandPath(), name)
			}
		}
		if len(isHidden) == 0 && !strings.Contains(usage, "--database-url string") {
			t.Errorf("%s does not show --database-url", cmd.CommandPath())
		}
	}
}

func TestArguments_NameTheFlagForAStage(t *testing.T) {
	t.Parallel()
	hinted := 0
	for _, cmd := range allCommands() {
		if cmd.Args == nil || cmd.Flags().Lookup("stage") == nil {
			continue
		}
		e, ok := errors.AsType[*usererr.Error](cmd.Args(cmd, []string{"transcode"}))
		if !ok {
			continue // it takes arguments
		}
		hinted++
		if want := cmd.CommandPath() + " --stage transcode"; !strings.Contains(e.Hint, want) {
			t.Errorf("the hint is %q, want %q in it", e.Hint, want)
		}
	}
	if hinted < 2 {
		t.Errorf("%d commands, want pause and resume at least", hinted)
	}
}

func TestMan_HasAPageForEveryCommandWithItsExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code := run(t.Context(), []string{"man", dir}, strings.NewReader(""), new(strings.Builder), new(strings.Builder), nil); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, cmd := range allCommands() {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		// In the text as it is printed, a line is one line.
		text := strings.NewReplacer(`\-`, "-", `\&`, "", `\\`, `\`).Replace(string(page))
		for line := range strings.Lines(cmd.Long) {
			if strings.HasPrefix(line, "  ") && !strings.Contains(text, strings.TrimSpace(line)+"\n") {
				t.Errorf("the page of %s does not have the line %q", cmd.CommandPath(), line)
			}
		}
	}
}
