package video

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Params are the parameters of a video's task, which [ParseParams] reads. docs/profiles.md describes the JSON.
type Params struct {
	// Title is what the dashboard shows instead of the name of the source.
	Title string
	// Description is a text about the video.
	Description string
	// Profile is the name of the profile that the settings came from. ProfileResolvedAt is when they
	// were copied from there; zero if they were not.
	Profile           string
	ProfileResolvedAt time.Time
	// Start and End are the times of the source, as of Settings.Poster, from which on and before which it becomes the video. Default: all
	// of it.
	Start, End string
	// Custom is an object for the submitter's own use.
	Custom json.RawMessage
	// Selected are the renditions that a retry makes again.
	Selected Selection

	Settings
}

// The members of params that are about profiles.
const (
	profileMember         = "profile"
	profileResolvedMember = "profile_resolved_at"
)

// DefaultProfile is the profile of submissions that name none. It always exists.
const DefaultProfile = "default"

// paramMembers are the members of params, in the order of the documentation.
var paramMembers = append([]string{
	"title", "description", "start", "end", profileMember, profileResolvedMember, "custom", selectedMember,
}, settingMembers...)

var paramParsers = func() parsers[Params] {
	all := parsers[Params]{
		"title": func(p *Params, value json.RawMessage) error { return parseAnyText("title", value, &p.Title) },
		"description": func(p *Params, value json.RawMessage) error {
			return parseAnyText("description", value, &p.Description)
		},
		profileMember: func(p *Params, value json.RawMessage) error {
			text, ok := parseText(value)
			if !ok {
				return wrongValue(profileMember, value, "the name of a profile")
			}
			p.Profile = text
			return CheckProfileName(text)
		},
		profileResolvedMember: func(p *Params, value json.RawMessage) error {
			if err := json.Unmarshal(value, &p.ProfileResolvedAt); err != nil {
				return wrongValue(profileResolvedMember, value, "a time, which Cuelight sets")
			}
			return nil
		},
		"start": func(p *Params, value json.RawMessage) error { return parseTime("start", value, &p.Start) },
		"end":   func(p *Params, value json.RawMessage) error { return parseTime("end", value, &p.End) },
		"custom": func(p *Params, value json.RawMessage) error {
			p.Custom = value
			_, err := parseObject("custom", value)
			return err
		},
	}
	all[selectedMember] = parseSelection
	for name, parse := range settingParsers {
		all[name] = func(p *Params, value json.RawMessage) error { return parse(&p.Settings, value) }
	}
	return all
}()

func parseAnyText(name string, value json.RawMessage, to *string) error {
	if err := json.Unmarshal(value, to); err != nil {
		return wrongValue(name, value, "a text")
	}
	return nil
}

// ParamsError says what is wrong with params. It matches [store.ErrInvalid].
type ParamsError struct {
	isProfile bool // of a profile's name or definition
	text      string
}

func (e *ParamsError) Error() string {
	if e.isProfile {
		return "profile: " + e.text
	}
	return "params: " + e.text
}

// Unwrap returns store.ErrInvalid.
func (e *ParamsError) Unwrap() error { return store.ErrInvalid }

// NewParamsError returns a ParamsError with a text.
func NewParamsError(text string) *ParamsError { return &ParamsError{text: text} }

func invalidParams(format string, args ...any) *ParamsError {
	return NewParamsError(fmt.Sprintf(format, args...))
}

// wrongValue says what a member must be.
func wrongValue(name string, value json.RawMessage, format string, args ...any) *ParamsError {
	text := bytes.ToValidUTF8(value[:min(len(value), 40)], nil)
	return invalidParams("%s must be %s, not %s", name, fmt.Sprintf(format, args...), text)
}

// ParseParams reads the params of a task strictly: unknown members and values out of range are a
// [*ParamsError]. Empty params are those without members.
func ParseParams(params json.RawMessage) (p Params, err error) {
	object, err := paramsObject(params)
	if err == nil {
		err = paramParsers.parse(&p, object, "", paramMembers)
	}
	if err == nil && p.End != "" && (p.Start == "" || strings.HasSuffix(p.Start, "%") == strings.HasSuffix(p.End, "%")) &&
		timeAt(p.End, 1) <= timeAt(p.Start, 1) {
		err = invalidParams("end (%s) must be after start (%s)", timeText(p.End), timeText(cmp.Or(p.Start, "0")))
	}
	return p, err
}

func paramsObject(params json.RawMessage) (map[string]json.RawMessage, error) {
	if len(params) == 0 {
		return nil, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(params, &object); err != nil || object == nil {
		return nil, invalidParams("they must be a JSON object")
	}
	return object, nil
}

// IsPublic reports whether the params of a task make its video public. Params that are not valid do not.
func IsPublic(params json.RawMessage) bool {
	p, err := ParseParams(params)
	return err == nil && p.Visibility == VisibilityPublic
}

// IsWatchedEarly reports whether the params of a task ask for an early version of its video, before the publish stage completes.
func IsWatchedEarly(params json.RawMessage) bool {
	p, err := ParseParams(params)
	return err == nil && p.WatchEarly
}

// Edit is a change of what viewers see of a video, which does not make it again. Nil members remain as they are.
type Edit struct {
	Title       *string `json:"title,omitempty"`
	Description *string `json:"description,omitempty"`
	Visibility  *string `json:"visibility,omitempty"`
}

// Apply returns changed params, or a [*ParamsError].
func (e Edit) Apply(params json.RawMessage) (json.RawMessage, error) {
	object, err := paramsObject(params)
	if err != nil {
		return nil, err
	}
	if e == (Edit{}) {
		return nil, invalidParams("there is nothing to change: give title, description or visibility")
	}
	object = maps.Clone(object)
	for name, text := range map[string]*string{"title": e.Title, "description": e.Description, visibilityMember: e.Visibility} {
		switch {
		case text == nil:
		case *text == "" && name != visibilityMember:
			delete(object, name)
		default:
			value, err := json.Marshal(*text)
			if err != nil {
				return nil, err
			}
			object = mergeMembers(map[string]json.RawMessage{name: value}, object)
		}
	}
	changed, err := json.Marshal(object)
	if err == nil {
		_, err = ParseParams(changed)
	}
	return changed, err
}

// ParseSettings reads the definition of a profile as strictly.
func ParseSettings(definition json.RawMessage) (s Settings, err error) {
	object, err := paramsObject(definition)
	if err == nil && object == nil {
		err = invalidParams("it is empty")
	}
	if err == nil {
		err = settingParsers.parse(&s, object, "", settingMembers)
	}
	if wrong, ok := errors.AsType[*ParamsError](err); ok {
		wrong.isProfile = true
	}
	return s, err
}

// maxProfileName is the length of a profile's name in bytes.
const maxProfileName = 64

// CheckProfileName returns a [*ParamsError] if a text cannot be the name of a profile.
func CheckProfileName(name string) error {
	for i, r := range name {
		isInner := i > 0 && (r == '.' || r == '_' || r == '-')
		if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || isInner) {
			name = ""
			break
		}
	}
	if name == "" || len(name) > maxProfileName {
		return &ParamsError{true, fmt.Sprintf("the name must have 1 to %d lower-case letters, digits and characters of ._-, "+
			"and begin with a letter or digit", maxProfileName)}
	}
	return nil
}

// ApplyProfile returns params with the members of a profile that they do not have themselves. A member that
// is null has its default, and is not taken from the profile. Both must be valid.
func ApplyProfile(params json.RawMessage, name string, definition json.RawMessage, at time.Time) (json.RawMessage, error) {
	into, err1 := paramsObject(params)
	from, err2 := paramsObject(definition)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("apply profile: %w", invalidParams("they must be a JSON object"))
	}
	merged := mergeMembers(into, from)
	var err error
	if audio, ok := into["audio"]; ok && !isNull(audio) && from["audio"] != nil && !isNull(from["audio"]) {
		if merged["audio"], err = mergeAudio(audio, from["audio"]); err != nil {
			return nil, err
		}
	}
	merged[profileMember] = json.RawMessage(fmt.Sprintf("%q", name))
	merged[profileResolvedMember] = json.RawMessage(at.UTC().Format(`"` + time.RFC3339 + `"`))
	return json.Marshal(merged)
}

func mergeMembers(into, from map[string]json.RawMessage) map[string]json.RawMessage {
	merged := maps.Clone(from)
	if merged == nil {
		merged = make(map[string]json.RawMessage)
	}
	maps.Copy(merged, into)
	return merged
}

func mergeAudio(into, from json.RawMessage) (json.RawMessage, error) {
	a, err := parseObject("audio", into)
	if err != nil {
		return nil, err
	}
	b, err := parseObject("audio", from)
	if err != nil {
		return nil, err
	}
	return json.Marshal(mergeMembers(a, b))
}

// TakePlacement moves the members requires and prefers of a submission's valid params to the placement of
// the transcode stage, in addition to what that has.
func TakePlacement(sub *store.Submission) error {
	object, err := paramsObject(sub.Params)
	if err != nil {
		return err
	}
	p, err := ParseParams(sub.Params)
	if err != nil || object["requires"] == nil && object["prefers"] == nil {
		return err
	}
	delete(object, "requires")
	delete(object, "prefers")
	if sub.Params, err = json.Marshal(object); err != nil {
		return err
	}
	if len(p.Requires)+len(p.Prefers) == 0 {
		return nil
	}
	placement := sub.Placement[transcodeStage]
	placement.Requires = appendMissing(placement.Requires, p.Requires)
	placement.Prefers = appendMissing(placement.Prefers, p.Prefers)
	sub.Placement = maps.Clone(sub.Placement) // the caller may use it for others
	if sub.Placement == nil {
		sub.Placement = make(map[string]store.Placement)
	}
	sub.Placement[transcodeStage] = placement
	return nil
}

func appendMissing(list, more []string) []string {
	list = slices.Clone(list)
	for _, item := range more {
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return list
}

// checkResolved refuses params whose profile or labels would have no effect: rows of SQL do not pass the
// code that resolves them.
func (p Params) checkResolved() error {
	switch {
	case p.Profile != "" && p.ProfileResolvedAt.IsZero():
		return invalidParams("nothing has resolved the profile %q, because the task was inserted with SQL: put the members of "+
			"the profile (cuelight profiles show %[1]s) into params instead and retry it, or submit the source again with cuelight "+
			"submit or the API", p.Profile)
	case len(p.Requires)+len(p.Prefers) > 0:
		return invalidParams("requires and prefers have no effect, because the task was inserted with SQL: set the column " +
			"placement instead and retry it, or submit the source again with cuelight submit or the API")
	}
	return nil
}
