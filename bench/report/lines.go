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

// series is a line, with a mark at each point if it has a glyph.
type series struct {
	name    string
	paint   paint
	glyph   draw.GlyphDrawer
	dashes  []vg.Length
	points  plotter.XYs
	crossed plotter.XYs // those of the points that have a cross instead
}

// Plot draws the series. The library calls it.
func (s series) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := make([]vg.Point, len(s.points))
	for i, xy := range s.points {
		at[i] = vg.Point{X: x(xy.X), Y: y(xy.Y)}
	}
	c.StrokeLines(stroke(s.paint, 2, s.dashes...), c.ClipLinesXY(at)...)
	for i, pt := range at {
		if slices.Contains(s.crossed, s.points[i]) {
			const r = 5
			c.StrokeLine2(stroke(s.paint, 2), pt.X-r, pt.Y-r, pt.X+r, pt.Y+r)
			c.StrokeLine2(stroke(s.paint, 2), pt.X-r, pt.Y+r, pt.X+r, pt.Y-r)
		} else {
			s.drawGlyph(c, pt)
		}
	}
}

func (s series) drawGlyph(c draw.Canvas, at vg.Point) {
	if s.glyph != nil {
		c.DrawGlyph(draw.GlyphStyle{Color: s.paint.color(), Radius: 4, Shape: s.glyph}, at)
	}
}

// pointRange returns the range of all points.
func pointRange(all []series) (x, y [2]float64) {
	x, y = [2]float64{math.Inf(1), math.Inf(-1)}, [2]float64{math.Inf(1), math.Inf(-1)}
	for _, s := range all {
		for _, xy := range s.points {
			x = [2]float64{min(x[0], xy.X), max(x[1], xy.X)}
			y = [2]float64{min(y[0], xy.Y), max(y[1], xy.Y)}
		}
	}
	return x, y
}

// panel is one of several plots side by side.
type panel struct {
	heading string
	plot    *plot.Plot
	all     []series
}

// drawPanels draws plots side by side, with one legend for all.
func drawPanels(name, title, subtitle string, height vg.Length, legend []series, panels ...panel) drawing {
	rows := legendRows(legend)
	legendHeight := vg.Length(len(rows))*leading + 4
	return newDrawing(name, title, subtitle, height+legendHeight, func(c draw.Canvas) {
		drawLegend(c, rows)
		c = draw.Crop(c, 0, 0, 0, -legendHeight)
		each := (c.Max.X - c.Min.X) / vg.Length(len(panels))
		for i, p := range panels {
			part := c
			part.Min.X = c.Min.X + vg.Length(i)*each
			part.Max.X = part.Min.X + each - 8
			if p.heading != "" {
				heading := vg.Point{X: part.Center().X, Y: part.Max.Y}
				part.FillText(textStyle(ink, true, text.XCenter, text.YTop), heading, p.heading)
				part.Max.Y -= leading + 4
			}
			p.plot.Add(newGrid(true))
			for _, s := range p.all {
				p.plot.Add(s)
			}
			p.plot.Draw(part)
		}
	})
}

const legendLine = vg.Length(26) // length of the sample of a line

// legendRows breaks the legend at the width of the drawing.
func legendRows(legend []series) (rows [][]series) {
	used := width
	for _, s := range legend {
		w := legendWidth(s)
		if used+w > width-8 {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], s)
		used += w
	}
	return rows
}

func legendWidth(s series) vg.Length { return legendLine + 4 + labelStyle.Width(s.name) + 14 }

func drawLegend(c draw.Canvas, rows [][]series) {
	for i, row := range rows {
		x, y := c.Min.X, c.Max.Y-(vg.Length(i)+0.5)*leading
		for _, s := range row {
			c.StrokeLine2(stroke(s.paint, 2, s.dashes...), x, y, x+legendLine, y)
			s.drawGlyph(c, vg.Point{X: x + legendLine/2, Y: y})
			c.FillText(labelStyle, vg.Point{X: x + legendLine + 4, Y: y}, s.name)
			x += legendWidth(s)
		}
	}
}
