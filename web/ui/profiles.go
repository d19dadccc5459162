package ui

import (
	"encoding/json"
	"net/http"

	"github.com/cuelight/cuelight/store"
)

// serveProfiles lists the profiles.
func (u *UI) serveProfiles(w http.ResponseWriter, r *http.Request) {
	all, err := u.o.Profiles(r.Context())
	if err != nil {
		u.fail(w, r, err)
		return
	}
	d := u.pageData(w, r)
	d.screen, d.Page, d.Input = screen{title: "Profiles"}, "profiles", map[string]any{
		"Profiles": all, "Command": shellCommand("profiles", "set", "NAME", "--renditions", "1080p,720p", "--quality", "20"),
	}
	u.render(w, http.StatusOK, "profiles", d)
}

// profileChoice returns the names of the profiles that a form offers besides that of submissions which name
// none. If they cannot be read, the form does without them.
func (u *UI) profileChoice(r *http.Request) (names []string) {
	if u.o.Profiles == nil || !u.o.Viewer(r.Context()).Submit {
		return nil
	}
	all, err := u.o.Profiles(r.Context())
	if err != nil {
		u.reportError("profiles", "profiles", err)
		return nil
	}
	for i, p := range all {
		if i > 0 {
			names = append(names, p.Name)
		}
	}
	return names
}

// profileParams returns the parameters of a submission with a profile, if it has one.
func profileParams(profile string) (json.RawMessage, error) {
	if profile == "" {
		return nil, nil
	}
	return json.Marshal(map[string]string{"profile": profile})
}

// addSettings adds what the parameters of a task ask for.
func (d *videoDetails) addSettings(of func(store.Task) (profile, settings string), t store.Task) {
	if of == nil {
		return
	}
	profile, settings := of(t)
	d.add("Profile", profile)
	d.add("Settings", settings)
}
