package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bar is a row of a plot of bars: a value with its name. Without a label it is a
// heading.
type bar struct {
	name      string
	paint     paint
	value     float64
	low, high float64 // a thin line from here to there; none where they are alike
	label     string
}

// bars lie, so that their names have room.
type bars struct {
	all  []bar
	line mark
}

// mark is a line across all bars; none at 0.
type mark struct {
	at    float64
	label string
}

const (
	pitch = vg.Length(20)
	thick = vg.Length(12)
)

// barPlot draws them, on a logarithmic axis or on one from 0.
func barPlot(name, title, below, unit string, logarithm bool, b bars) drawing {
	p := bare()
	p.HideY()
	p.Y.Min, p.Y.Max = 0, float64(len(b.all))
	low, high := b.reach()
	if logarithm {
		logarithmic(&p.X, unit, low, high)
		p.X.Min = math.Pow(10, math.Floor(math.Log10(low/1.3)))
		p.X.Max = max(high, 10*p.X.Min)
	} else {
		p.X.Tick.Marker = even(unit)
		p.X.Min, p.X.Max = 0, high
	}
	p.Add(grid{x: true}, b)
	height := vg.Length(len(b.all))*pitch + 20
	if b.line.at > 0 {
		height += leading
	}
	return sheet(name, title, below, height, func(c draw.Canvas) {
		if b.line.at > 0 {
			c = draw.Crop(c, 0, 0, 0, -leading)
		}
		p.Draw(c)
	})
}

// reach is from the smallest value to the largest.
func (b bars) reach() (low, high float64) {
	low, high = math.Inf(1), b.line.at
	for _, row := range b.all {
		if row.label != "" {
			low, high = min(low, row.value), max(high, row.value, row.high)
		}
	}
	if b.line.at > 0 {
		low = min(low, b.line.at)
	}
	return low, high
}

// y is the middle of a row, the first one on top.
func (b bars) y(row int) float64 { return float64(len(b.all)-row) - 0.5 }

// Plot is called by the library.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	left := c.Min.X
	for i, row := range b.all {
		mid := y(b.y(i))
		c.FillText(letters(ink, row.label == "", text.XRight, text.YCenter), vg.Point{X: left - 6, Y: mid}, row.name)
		if row.label == "" {
			continue
		}
		end := x(row.value)
		c.FillPolygon(row.paint.color(), []vg.Point{
			{X: left, Y: mid - thick/2}, {X: end, Y: mid - thick/2}, {X: end, Y: mid + thick/2}, {X: left, Y: mid + thick/2},
		})
		if row.low < row.high {
			c.StrokeLine2(stroke(ink, 1), max(x(max(row.low, p.X.Min)), left), mid, x(row.high), mid)
			c.StrokeLine2(stroke(ink, 1), x(row.high), mid-3, x(row.high), mid+3)
		}
		c.FillText(letters(ink, false, text.XLeft, text.YCenter), vg.Point{X: max(end, x(max(row.high, row.value))) + 5, Y: mid}, row.label)
	}
	if b.line.at > 0 {
		at := x(b.line.at)
		c.StrokeLine2(stroke(ink, 1, 3, 2), at, c.Min.Y, at, c.Max.Y)
		c.FillText(letters(ink, false, text.XCenter, text.YBottom), vg.Point{X: at, Y: c.Max.Y + 2}, b.line.label)
	}
}

// GlyphBoxes tells the library how much room the text needs.
func (b bars) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	var boxes []plot.GlyphBox
	for i, row := range b.all {
		y := p.Y.Norm(b.y(i))
		name := letters(ink, row.label == "", text.XRight, text.YCenter)
		boxes = append(boxes, plot.GlyphBox{X: 0, Y: y, Rectangle: shifted(name.Rectangle(row.name), -8)})
		if row.label != "" {
			label := letters(ink, false, text.XLeft, text.YCenter)
			boxes = append(boxes, plot.GlyphBox{
				X: p.X.Norm(max(row.value, row.high)), Y: y, Rectangle: shifted(label.Rectangle(row.label), 14),
			})
		}
	}
	return boxes
}

func shifted(r vg.Rectangle, x vg.Length) vg.Rectangle { return r.Add(vg.Point{X: x}) }
