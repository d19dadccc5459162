package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Placement says which workers may do a stage of a task. A worker offers the labels that its
// operator gave it and the encoders that it has: the members labels and encoders, lists of
// strings, of [Worker].Capabilities.
type Placement struct {
	// Requires lists what a worker must offer. A worker that does not never claims the stage.
	Requires []string `json:"requires,omitempty"`
	// Prefers lists what a worker should offer. One that offers only Requires leaves the stage to
	// those that offer Prefers as well, for Wait from when the stage became ready, or until none of
	// them can take it: they are gone, drain, are paused, or have tried it already.
	Prefers []string `json:"prefers,omitempty"`
	// Wait is rounded to milliseconds. Default [DefaultPlacementWait], at most a day.
	Wait time.Duration `json:"-"`
}

// DefaultPlacementWait is how long workers leave a stage to those that the task prefers.
const DefaultPlacementWait = time.Minute

// Limits of a [Placement].
const (
	maxPlacementLabels = 20
	maxPlacementLabel  = 100 // bytes
	maxPlacementWait   = 24 * time.Hour
)

type placementJSON struct {
	Requires []string `json:"requires,omitempty"`
	Prefers  []string `json:"prefers,omitempty"`
	Wait     *float64 `json:"wait_s,omitempty"`
}

// MarshalJSON returns {"requires": [...], "prefers": [...], "wait_s": seconds}.
func (p Placement) MarshalJSON() ([]byte, error) {
	text := placementJSON{Requires: p.Requires, Prefers: p.Prefers}
	if p.Wait > 0 {
		seconds := p.Wait.Round(time.Millisecond).Seconds()
		text.Wait = &seconds
	}
	return json.Marshal(text)
}

// UnmarshalJSON reads what MarshalJSON returns. Other members are an error.
func (p *Placement) UnmarshalJSON(raw []byte) error {
	var text placementJSON
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&text); err != nil {
		return fmt.Errorf("a placement has the members requires and prefers, lists of labels, and wait_s, a number: %w", err)
	}
	*p = Placement{Requires: text.Requires, Prefers: text.Prefers}
	if text.Wait != nil {
		p.Wait = time.Duration(min(max(*text.Wait, 0), 2*maxPlacementWait.Seconds()) * float64(time.Second))
	}
	return nil
}

// String says it in words: requires gpu, prefers h264_nvenc for 1m0s.
func (p Placement) String() string {
	var parts []string
	if len(p.Requires) > 0 {
		parts = append(parts, "requires "+strings.Join(p.Requires, " and "))
	}
	if len(p.Prefers) > 0 {
		parts = append(parts, fmt.Sprintf("prefers %s for %s", strings.Join(p.Prefers, " and "), cmp.Or(p.Wait, DefaultPlacementWait)))
	}
	return strings.Join(parts, ", ")
}

// placementText is the value of the column placement, null for none. Its errors wrap [ErrInvalid].
func (g Graph) placementText(byStage map[string]Placement) (*string, error) {
	if len(byStage) == 0 {
		return nil, nil
	}
	for stage, p := range byStage {
		if _, ok := g.Stage(stage); !ok {
			return nil, fmt.Errorf("%w: placement: unknown stage %q; allowed: %s", ErrInvalid, stage, strings.Join(g.Stages(), ", "))
		}
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%w: placement of stage %s: %w", ErrInvalid, stage, err)
		}
	}
	raw, err := json.Marshal(byStage)
	text := string(raw)
	return &text, err
}

func (p Placement) check() error {
	labels := slices.Concat(p.Requires, p.Prefers)
	if len(labels) > maxPlacementLabels {
		return fmt.Errorf("it has %d labels; the maximum is %d", len(labels), maxPlacementLabels)
	}
	for _, label := range labels {
		if err := CheckLabel(label); err != nil {
			return err
		}
	}
	if p.Wait < 0 || p.Wait > maxPlacementWait {
		return fmt.Errorf("the wait must be between 0 and %s", maxPlacementWait)
	}
	return nil
}

// Offers lists what a worker offers to tasks: the labels that its operator gave it, and its
// encoders.
func (w Worker) Offers() []string {
	offers, _ := w.parseOffers() // without such lists it offers nothing
	return offers
}

// CheckOffers returns an error if the labels or the encoders of a worker are not a list of labels. The database
// takes one that is no list for its element.
func (w Worker) CheckOffers() error {
	offers, err := w.parseOffers()
	for _, label := range offers {
		err = errors.Join(err, CheckLabel(label))
	}
	return err
}

// parseOffers reads the members that the function cuelight_offers does. Fields of a struct would have others, whose
// names differ in case.
func (w Worker) parseOffers() (offers []string, err error) {
	var members map[string]json.RawMessage
	if len(w.Capabilities) > 0 {
		err = json.Unmarshal(w.Capabilities, &members)
	}
	for _, name := range []string{"labels", "encoders"} {
		var list []string
		if text, ok := members[name]; ok && json.Unmarshal(text, &list) != nil {
			return nil, fmt.Errorf("%s is not a list of strings", name)
		}
		offers = append(offers, list...)
	}
	return offers, err
}

// Lacks returns what a worker does not offer of a list.
func (w Worker) Lacks(required []string) []string {
	offered := w.Offers()
	return slices.DeleteFunc(slices.Clone(required), func(label string) bool { return slices.Contains(offered, label) })
}

// CheckLabel returns an error if a text cannot be a label of a worker: it has 1 to 100 letters,
// digits, and the characters . _ : / = + -.
func CheckLabel(label string) error {
	valid := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._:/=+-", r)
	}
	if label == "" || len(label) > maxPlacementLabel || strings.ContainsFunc(label, func(r rune) bool { return !valid(r) }) {
		return fmt.Errorf("label %q: a label has 1 to %d letters, digits and characters of ._:/=+-", label, maxPlacementLabel)
	}
	return nil
}
