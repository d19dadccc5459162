package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// byteSize is a flag value for a number of bytes: 500M, 20GiB.
type byteSize int64

func (b *byteSize) Type() string { return "size" }

// String returns the exact size.
func (b *byteSize) String() string {
	n, unit := int64(*b), 0
	for n != 0 && n%1024 == 0 && unit < 6 {
		n, unit = n/1024, unit+1
	}
	return strconv.FormatInt(n, 10) + []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}[unit]
}

// Set parses a number with a unit. KB, KiB and K are all 1024 bytes.
func (b *byteSize) Set(s string) error {
	upper := strings.ToUpper(strings.TrimSpace(s))
	number := strings.TrimRight(upper, "BI")
	shift := 0
	if i := strings.IndexAny(number, "KMGTPE"); i >= 0 && i == len(number)-1 {
		shift = 10 * (1 + strings.IndexByte("KMGTPE", number[i]))
		number = number[:i]
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) || v*float64(int64(1)<<shift) > 1<<62 {
		return errors.New("it must be a size such as 500M or 20G")
	}
	*b = byteSize(v * float64(int64(1)<<shift))
	return nil
}

// networks is a flag value for networks and single addresses: 10.0.0.0/8,10.1.2.3. The
// flag is repeatable.
type networks []netip.Prefix

func (n *networks) Type() string   { return "strings" }
func (n *networks) String() string { return joinValues(*n) }

// Set adds networks.
func (n *networks) Set(list string) error {
	for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		network, err := parseNetwork(text)
		if err != nil {
			return errors.New("it must be a network, such as 10.0.0.0/8")
		}
		*n = append(*n, network)
	}
	return nil
}

// parseNetwork parses a network or a single address.
func parseNetwork(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(s)
}

// labels is a flag value for labels: gpu,north. The flag is repeatable. An empty one may be a variable of the
// shell that is not set.
type labels []string

func (l *labels) Type() string   { return "strings" }
func (l *labels) String() string { return joinValues(*l) }

// Set adds labels.
func (l *labels) Set(list string) error {
	for label := range strings.SplitSeq(list, ",") {
		if store.CheckLabel(label) != nil {
			return errors.New("a label has 1 to 100 letters, digits and characters of ._:/=+-")
		}
		*l = append(*l, label)
	}
	return nil
}

// joinValues returns the values of a list as the flag takes them.
func joinValues[T any](all []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(all), "[]"), " ", ",")
}

// chunkLength is a flag value for the length of a chunk: 30s, or never, which is negative.
type chunkLength time.Duration

func (c *chunkLength) Type() string { return "length" } // a duration would have another message

func (c *chunkLength) String() string {
	if *c < 0 {
		return "never"
	}
	return time.Duration(*c).String()
}

// Set parses a length.
func (c *chunkLength) Set(text string) error {
	if text == "never" {
		*c = -1
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 6*time.Second || d > time.Hour {
		return errors.New("it must be 6s to 1h, or never")
	}
	*c = chunkLength(d)
	return nil
}

// heights is a flag value for renditions: 1080p,720p. The flag is repeatable.
type heights []int

func (h *heights) Type() string   { return "strings" }
func (h *heights) String() string { return joinValues(*h) }

// Set adds heights.
func (h *heights) Set(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		height, err := video.ParseHeight(text)
		if err != nil {
			return errors.New("it must be heights such as 1080p,720p; allowed: " + video.HeightList())
		}
		*h = append(*h, height)
	}
	return nil
}
