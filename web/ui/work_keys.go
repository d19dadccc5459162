package ui

import (
	"context"
	"net/http"

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
	c.Text = "The key is refused from now on, until you enable it. Workers that have registered with it are drained."
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
