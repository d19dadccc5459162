package report

import (
	"fmt"
	"image/color"
	"strings"
)

// paint is a colour for light and for dark backgrounds. Plots use the light one; a style in
// the SVG replaces it.
type paint struct{ light, dark uint32 }

// The colours of text and axes, of less important text, and of the grid.
var (
	ink   = paint{0x1F2328, 0xE6EDF3}
	muted = paint{0x59636E, 0x9198A1}
	faint = paint{0xD1D9E0, 0x30363D}
)

// paints are the colours of systems in all plots. Their contrast to the background is at least
// 3:1, and those of one line plot differ for colour-blind readers; lines have marks, too.
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

func paintOf(system string) paint {
	if p, ok := paints[system]; ok {
		return p
	}
	return muted
}

func (p paint) color() color.Color {
	return color.NRGBA{R: uint8(p.light >> 16), G: uint8(p.light >> 8), B: uint8(p.light), A: 0xFF}
}

func hex(v uint32) string { return fmt.Sprintf("#%06X", v) }

// darkStyle returns rules that replace the light colours of an SVG by dark ones. Fills and
// strokes are attributes of elements, which only important rules override. Programs without
// support for such rules show the light colours.
func darkStyle(svg string) string {
	all := []paint{ink, muted, faint}
	for _, name := range sortedKeys(paints) {
		all = append(all, paints[name])
	}
	var rules strings.Builder
	seen := map[uint32]bool{}
	for _, p := range all {
		for _, property := range []string{"fill", "stroke"} {
			if light := property + ":" + hex(p.light); !seen[p.light] && strings.Contains(svg, light) {
				fmt.Fprintf(&rules, "[style*=%q]{%s:%s!important}", light, property, hex(p.dark))
			}
		}
		seen[p.light] = true
	}
	return "@media (prefers-color-scheme:dark){" + rules.String() + "}"
}
