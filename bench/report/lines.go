package report

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// series is a line, with a mark at each point, or without marks.
type series struct {
	name   string
	paint  paint
	glyph  draw.GlyphDrawer // nil for none
	dashes []vg.Length
	points plotter.XYs
	lost   plotter.XYs // those of the points that have a cross instead
}

// glyphs are the contestants' marks, so that not only colour tells them apart.
var glyphs = map[string]draw.GlyphDrawer{
	ours:            draw.CircleGlyph{},
	floor:           draw.PlusGlyph{},
	"river_tx":      draw.BoxGlyph{},
	"river_fast":    draw.PyramidGlyph{},
	"river_default": draw.SquareGlyph{},
	"graphile":      draw.RingGlyph{},
	"dbos":          draw.TriangleGlyph{},
}

// Plot is called by the library.
func (s series) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := make([]vg.Point, len(s.points))
	for i, xy := range s.points {
		at[i] = vg.Point{X: x(xy.X), Y: y(xy.Y)}
	}
	c.StrokeLines(stroke(s.paint, 2, s.dashes...), c.ClipLinesXY(at)...)
	for i, pt := range at {
		if slices.Contains(s.lost, s.points[i]) {
			cross(c, s.paint, pt)
		} else {
			s.mark(c, s.glyph, pt)
		}
	}
}

func cross(c draw.Canvas, p paint, at vg.Point) {
	const r = 5
	c.StrokeLine2(stroke(p, 2), at.X-r, at.Y-r, at.X+r, at.Y+r)
	c.StrokeLine2(stroke(p, 2), at.X-r, at.Y+r, at.X+r, at.Y-r)
}

func (s series) mark(c draw.Canvas, g draw.GlyphDrawer, at vg.Point) {
	if g != nil {
		c.DrawGlyph(draw.GlyphStyle{Color: s.paint.color(), Radius: 4, Shape: g}, at)
	}
}

// reach is the range of all points.
func reach(all []series) (x, y [2]float64) {
	x, y = [2]float64{math.Inf(1), math.Inf(-1)}, [2]float64{math.Inf(1), math.Inf(-1)}
	for _, s := range all {
		for _, xy := range s.points {
			x = [2]float64{min(x[0], xy.X), max(x[1], xy.X)}
			y = [2]float64{min(y[0], xy.Y), max(y[1], xy.Y)}
		}
	}
	return x, y
}

// panel is one of the plots side by side.
type panel struct {
	heading string
	plot    *plot.Plot
	all     []series
}

// panels draws plots side by side, with one key for all.
func panels(name, title, below string, height vg.Length, key []series, all ...panel) drawing {
	rows := keyRows(key)
	return sheet(name, title, below, height+vg.Length(len(rows))*leading+4, func(c draw.Canvas) {
		drawKey(c, rows)
		c = draw.Crop(c, 0, 0, 0, -vg.Length(len(rows))*leading-4)
		each := (c.Max.X - c.Min.X) / vg.Length(len(all))
		for i, p := range all {
			part := c
			part.Min.X = c.Min.X + vg.Length(i)*each
			part.Max.X = part.Min.X + each - 8
			if p.heading != "" {
				part.FillText(letters(ink, true, text.XCenter, text.YTop), vg.Point{X: part.Center().X, Y: part.Max.Y}, p.heading)
				part.Max.Y -= leading + 4
			}
			p.plot.Add(grid{x: true, y: true})
			for _, s := range p.all {
				p.plot.Add(s)
			}
			p.plot.Draw(part)
		}
	})
}

const dash = vg.Length(26) // of a line, in the key

// keyRows breaks the key where the width ends.
func keyRows(key []series) [][]series {
	var rows [][]series
	used := width
	for _, s := range key {
		w := keyWidth(s)
		if used+w > width-8 {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], s)
		used += w
	}
	return rows
}

func keyWidth(s series) vg.Length {
	return dash + 4 + letters(ink, false, text.XLeft, text.YCenter).Width(s.name) + 14
}

func drawKey(c draw.Canvas, rows [][]series) {
	for i, row := range rows {
		x, y := c.Min.X, c.Max.Y-(vg.Length(i)+0.5)*leading
		for _, s := range row {
			c.StrokeLine2(stroke(s.paint, 2, s.dashes...), x, y, x+dash, y)
			s.mark(c, s.glyph, vg.Point{X: x + dash/2, Y: y})
			c.FillText(letters(ink, false, text.XLeft, text.YCenter), vg.Point{X: x + dash + 4, Y: y}, s.name)
			x += keyWidth(s)
		}
	}
}
