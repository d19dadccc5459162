package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// audited returns the actions in the audit log, oldest first.
func (p *workDir) audited() (actions []string) {
	p.t.Helper()
	var address string
	for _, variable := range p.env {
		if value, ok := strings.CutPrefix(variable, "DATABASE_URL="); ok {
			address = value
		}
	}
	conn, err := pgx.Connect(p.t.Context(), address)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(p.t.Context())
	rows, err := conn.Query(p.t.Context(), "select action from cuelight_audit order by id")
	if err == nil {
		actions, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return actions
}

// An action is audited even if its result cannot be printed.
func TestWebhookCommands_AreAudited(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("this system has no disk that is always full: %v", err)
	}
	defer full.Close()
	p.run(0, "webhooks", "add", "https://receiver.example/")
	list := decode[struct{ ID string }](p.run(0, "webhooks", "list", "--json"))
	if len(list) != 1 {
		t.Fatalf("%d webhooks, want 1", len(list))
	}
	id := list[0].ID
	for _, act := range []string{"disable", "enable", "rotate", "remove"} {
		r := p.startWith(func(c *exec.Cmd) { c.Stdout = full }, "webhooks", act, id)
		r.end(1)
	}
	p.run(0, "webhooks", "add", "https://receiver.example/")
	p.run(4, "webhooks", "redeliver", id)
	p.run(2, "webhooks", "add", "https://127.0.0.1/")
	want := "[webhook_add webhook_disable webhook_enable webhook_rotate webhook_remove webhook_add]"
	if got := fmt.Sprint(p.audited()); got != want {
		t.Errorf("audited is\n\t%s\nwant\n\t%s", got, want)
	}
}

func TestWebhooksAdd_GivesAChatAllAlerts(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(0, "webhooks", "add", "https://hooks.slack.example/services/secret", "--format", "slack")
	type hook struct {
		ID, Format string
		Types      []string
	}
	list := decode[hook](p.run(0, "webhooks", "list", "--json"))
	if len(list) != 1 || list[0].Format != "slack" || fmt.Sprint(list[0].Types) != "[alert]" {
		t.Errorf("webhooks are %+v", list)
	}
	p.run(0, "webhooks", "change", list[0].ID, "--format", "discord")
	if got := p.run(0, "webhooks", "list").stdout.String(); !strings.Contains(got, "  discord  alert  ") {
		t.Errorf("list prints\n%s", got)
	}
	if got := p.run(2, "webhooks", "add", "https://example.org/", "--format", "teams").stderr(); !strings.Contains(got,
		`unknown format "teams"; allowed: cuelight, slack, discord`) {
		t.Errorf("an unknown format prints\n%s", got)
	}
}

func TestSubmitReplaces_IsAudited(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(0, "submit", "clip.mp4")
	p.run(0, "submit", "other.mp4", "--replaces", p.list()[0].TaskID.String())
	if got, want := fmt.Sprint(p.audited()), "[override]"; got != want {
		t.Errorf("audited is %s, want %s", got, want)
	}
}
