package report

import (
	"fmt"
	"image/color"
	"strings"
)

// paint is a colour in light and in dark. What is drawn is the light one; a
// style in the SVG puts the dark one in its place.
type paint struct{ light, dark uint32 }

// The inks: of text and axes, of what matters less, and of lines behind.
var (
	ink   = paint{0x1F2328, 0xE6EDF3}
	muted = paint{0x59636E, 0x9198A1}
	faint = paint{0xD1D9E0, 0x30363D}
)

// paints are the contestants' colours, the same in every plot. They have a
// contrast of 3:1 or more to the ground, and those that meet in one plot of
// lines differ for people who do not see red and green; lines have marks, too.
var paints = map[string]paint{
	ours:              {0x0072B2, 0x58B4F5},
	floor:             ink,
	"river_tx":        {0xB33A00, 0xFF7430},
	"river_fast":      {0xB88C00, 0xF0D24A},
	"river_default":   {0x8F3B1B, 0xC9714A},
	"graphile":        {0xC768AC, 0xF2A3DA},
	"dbos":            {0x008F68, 0x2CCB9B},
	"pgboss":          {0x7A5640, 0xBF9A80},
	"polling_5s":      {0x6E7781, 0x8B949E},
	"polling_1s":      {0x8A939C, 0x6E7781},
	"ffmpeg_bare":     {0x6E7781, 0x8B949E},
	"ffmpeg_per_rung": {0x8A939C, 0x6E7781},
}

func paintOf(contestant string) paint {
	if p, ok := paints[contestant]; ok {
		return p
	}
	return muted
}

func rgb(v uint32) color.NRGBA {
	return color.NRGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 0xFF}
}

func (p paint) color() color.Color { return rgb(p.light) }

func hex(v uint32) string { return fmt.Sprintf("#%06X", v) }

// darkened is the style that puts the dark colours in the places of the light
// ones that the SVG has: fills and strokes are written into the elements, and
// only an important rule is stronger than that. Programs that know no such
// rules show the light ones.
func darkened(svg string) string {
	all := []paint{ink, muted, faint}
	for _, name := range sortedKeys(paints) {
		all = append(all, paints[name])
	}
	var rules strings.Builder
	seen := map[uint32]bool{}
	for _, p := range all {
		for _, of := range []string{"fill", "stroke"} {
			if was := of + ":" + hex(p.light); !seen[p.light] && strings.Contains(svg, was) {
				fmt.Fprintf(&rules, "[style*=%q]{%s:%s!important}", was, of, hex(p.dark))
			}
		}
		seen[p.light] = true
	}
	return "@media (prefers-color-scheme:dark){" + rules.String() + "}"
}
