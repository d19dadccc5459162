package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
)

// videoFlags are the flags for the most usual members of params.
type videoFlags struct {
	profile    string
	renditions heights
	start, end string
}

func (v *videoFlags) add(f *pflag.FlagSet) {
	f.StringVar(&v.profile, "profile", "", "profile that says how the video is made; cuelight profiles lists them")
	f.StringVar(&v.start, "start", "", "time in the source with which the video begins, such as 12.5, 0:01:30 or 25%")
	f.StringVar(&v.end, "end", "", "time in the source before which it ends")
	f.Var(&v.renditions, "renditions", "heights to make, such as 1080p,720p (default all up to the source's)")
}

// addTo returns valid params with the members of the flags.
func (v *videoFlags) addTo(params json.RawMessage) (json.RawMessage, error) {
	members := make(map[string]any)
	for name, value := range map[string]string{"profile": v.profile, "start": v.start, "end": v.end} {
		if value != "" {
			members[name] = value
		}
	}
	if len(v.renditions) > 0 {
		members["renditions"] = v.renditions
	}
	if len(members) > 0 {
		var given map[string]json.RawMessage
		if err := json.Unmarshal(params, &given); err != nil {
			return nil, fmt.Errorf("read params: %w", err)
		}
		for name, value := range given {
			if _, twice := members[name]; twice {
				return nil, usererr.Usagef("--params has %s already, which --%[1]s gives as well", name)
			}
			members[name] = value
		}
		var err error
		if params, err = json.Marshal(members); err != nil {
			return nil, err
		}
	}
	_, err := video.ParseParams(params)
	return params, err
}
