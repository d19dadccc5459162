package report

import (
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot/vg/draw"
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

// The systems that the report names.
const (
	cuelightSystem = "cuelight"
	floor          = "floor"
)

// systemStyle is how a system appears: its readable name, and in plots its colour and its mark.
type systemStyle struct {
	label string
	paint paint
	glyph draw.GlyphDrawer // nil for systems without line plots
}

// systemStyles are the styles of all systems. The contrast of colours to the background is at
// least 3:1, and those of one line plot differ for colour-blind readers; marks distinguish lines,
// too.
var systemStyles = map[string]systemStyle{
	cuelightSystem:    {"Cuelight", paint{0x0072B2, 0x58B4F5}, draw.CircleGlyph{}},
	"cuelight_remote": {"Cuelight, remote worker", paint{0x0072B2, 0x58B4F5}, nil},
	floor:             {"floor (bare SQL)", ink, draw.PlusGlyph{}},
	"river_tx":        {"River, transactional", paint{0xB33A00, 0xFF7430}, draw.BoxGlyph{}},
	"river_fast":      {"River, not transactional", paint{0xB88C00, 0xF0D24A}, draw.PyramidGlyph{}},
	"river_default":   {"River, default cooldown", paint{0x8F3B1B, 0xC9714A}, draw.SquareGlyph{}},
	"graphile":        {"Graphile Worker", paint{0xC768AC, 0xF2A3DA}, draw.RingGlyph{}},
	"dbos":            {"DBOS", paint{0x008F68, 0x2CCB9B}, draw.TriangleGlyph{}},
	"pgboss":          {"pg-boss", paint{0x7A5640, 0xBF9A80}, nil},
	"polling_5s":      {"polling every 5 s", paint{0x6E7781, 0x8B949E}, nil},
	"polling_1s":      {"polling every 1 s", paint{0x8A939C, 0x6E7781}, nil},
	"ffmpeg_bare":     {"the same ffmpeg, bare", paint{0x6E7781, 0x8B949E}, nil},
	"ffmpeg_per_rung": {"one ffmpeg per rung", paint{0x8A939C, 0x6E7781}, nil},
}

// styleOf returns the style of a system. An unknown one appears under its own name.
func styleOf(system string) systemStyle {
	if s, ok := systemStyles[system]; ok {
		return s
	}
	return systemStyle{label: system, paint: muted}
}

func label(system string) string { return styleOf(system).label }

func (p paint) color() color.Color {
	return color.NRGBA{R: uint8(p.light >> 16), G: uint8(p.light >> 8), B: uint8(p.light), A: 0xFF}
}

func hex(v uint32) string { return fmt.Sprintf("#%06X", v) }

// darkStyle returns rules that replace the light colours of an SVG by dark ones. Fills and
// strokes are attributes of elements, which only important rules override. Programs without
// support for such rules show the light colours.
func darkStyle(svg string) string {
	all := []paint{ink, muted, faint}
	for _, name := range sortedKeys(systemStyles) {
		all = append(all, systemStyles[name].paint)
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
