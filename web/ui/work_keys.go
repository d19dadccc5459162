package ui

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/report"
)

// workKey is a key of the scope work as the page of workers shows it to operators.
type workKey struct {
	report.Key
	Class string // also the name of an icon
}

var keyClasses = map[string]string{
	"busy": "inprogress", "idle": "completed", "draining": "paused", "silent": "dead",
	"offline": "pending", "disabled": "paused",
}

// addWorkKeys adds the keys that remote workers register with, except revoked ones.
func (u *UI) addWorkKeys(ctx context.Context, r *fragmentRenderer) error {
	keys, err := u.o.Store.Keys(ctx)
	if err != nil {
		return err
	}
	none := true
	for _, k := range keys {
		if k.Scope == access.Work.String() && k.RevokedAt == nil {
			none = false
			r.add("k-"+k.ID.String(), "keys", "work-key", workKey{k, keyClasses[k.State]})
		}
	}
	if none {
		r.add("no-keys", "keys", "no-work-keys", nil)
	}
	return nil
}

func confirmDisableKey(u *UI, r *http.Request) (confirmation, error) {
	c, err := keyConfirmation(u, r, "disable")
	c.Title, c.Button, c.IsDanger = "Disable this key", "Disable", true
	c.Text = "The key is refused from now on, until you enable it. Workers that have registered with it are stopped, " +
		"and other workers take their tasks at once."
	return c, err
}

func confirmEnableKey(u *UI, r *http.Request) (confirmation, error) {
	c, err := keyConfirmation(u, r, "enable")
	c.Title, c.Button = "Enable this key", "Enable"
	c.Text = "The key is accepted again."
	return c, err
}

func keyConfirmation(u *UI, r *http.Request, verb string) (confirmation, error) {
	id, err := pathID(r)
	return confirmation{
		Action:  u.o.BasePath + "/keys/" + id.String() + "/" + verb,
		Command: shellCommand("keys", verb, id.String()), Back: u.o.BasePath + "/workers",
	}, err
}

func doDisableKey(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	key, err := u.o.Actions.DisableKey(ctx, id)
	return "Disabled: " + printable(key.Name) + ".", err
}

func doEnableKey(u *UI, ctx context.Context, r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", err
	}
	key, err := u.o.Actions.EnableKey(ctx, id)
	return "Enabled: " + printable(key.Name) + ".", err
}

// keyScope is a scope to choose from.
type keyScope struct{ Name, Text string }

// keyForm asks for the name and the scope of a key, or shows the text of a new one.
type keyForm struct {
	Scopes      []keyScope
	Command     string // the same in a shell
	Name, Scope string
	Text        string // of the new key
}

// serveKeyForm asks for the name and the scope of a new key.
func (u *UI) serveKeyForm(w http.ResponseWriter, r *http.Request) {
	u.serveKey(w, r, "Create a key", func() (keyForm, error) {
		return keyForm{Command: shellCommand("keys", "create", "NAME", "--scope", access.Work.String()), Scopes: []keyScope{
			{access.Work.String(), "what a remote worker does, and nothing else"},
			{access.Read.String(), "reading"},
			{access.Submit.String(), "reading, and submitting videos"},
			{access.Admin.String(), "everything"},
		}}, nil
	})
}

// serveNewKey creates a key. Its text is in this answer only, and not in a redirect or a message.
func (u *UI) serveNewKey(w http.ResponseWriter, r *http.Request) {
	u.serveKey(w, r, "Key created", func() (keyForm, error) {
		r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
		if err := r.ParseForm(); err != nil {
			return keyForm{}, fmt.Errorf("%w: %w", errIncomplete, err)
		}
		name, scope := strings.TrimSpace(r.PostForm.Get("name")), r.PostForm.Get("scope")
		_, text, err := u.o.Actions.CreateKey(r.Context(), name, scope)
		u.o.OnAction(r.Context())
		u.hub.invalidate()
		return keyForm{Name: name, Scope: scope, Text: text}, err
	})
}

// serveKey shows the page that make returns, to operators.
func (u *UI) serveKey(w http.ResponseWriter, r *http.Request, title string, make func() (keyForm, error)) {
	if !mayOperate(u.o.Viewer(r.Context())) {
		u.fail(w, r, errReadOnly)
		return
	}
	form, err := make()
	if err != nil {
		u.fail(w, r, err)
		return
	}
	d := u.pageData(w, r)
	d.screen, d.Page, d.Input = screen{title: title}, "confirm", form
	u.render(w, http.StatusOK, "key", d)
}
