package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bar is a row of a bar plot. Without a label it is a heading.
type bar struct {
	name      string
	paint     paint
	value     float64
	low, high float64 // the ends of a thin line; none if they are equal
	label     string
}

// bars are horizontal, so that their names have room.
type bars struct {
	all       []bar
	line      float64 // across all bars; 0 for none
	lineLabel string
}

const (
	rowHeight = vg.Length(20)
	barHeight = vg.Length(12)
)

// draw draws the bars on a logarithmic axis or on one from 0.
func (b bars) draw(name, title, subtitle, unit string, logarithmic bool) drawing {
	p := newPlot()
	p.HideY()
	p.Y.Min, p.Y.Max = 0, float64(len(b.all))
	low, high := b.valueRange()
	if logarithmic {
		setLogarithmic(&p.X, unit, low, high)
		p.X.Min = math.Pow(10, math.Floor(math.Log10(low/1.3)))
		p.X.Max = max(high, 10*p.X.Min)
	} else {
		p.X.Tick.Marker = linearTicks(unit)
		p.X.Min, p.X.Max = 0, high
	}
	p.Add(newGrid(false), b)
	lineSpace := vg.Length(0)
	if b.line > 0 {
		lineSpace = leading
	}
	return newDrawing(name, title, subtitle, vg.Length(len(b.all))*rowHeight+20+lineSpace, func(c draw.Canvas) {
		p.Draw(draw.Crop(c, 0, 0, 0, -lineSpace))
	})
}

func (b bars) valueRange() (low, high float64) {
	low, high = math.Inf(1), b.line
	if b.line > 0 {
		low = b.line
	}
	for _, row := range b.all {
		if row.label != "" {
			low, high = min(low, row.value), max(high, row.value, row.high)
		}
	}
	return low, high
}

// y returns the middle of a row. The first row is on top.
func (b bars) y(row int) float64 { return float64(len(b.all)-row) - 0.5 }

// Plot draws the bars. The library calls it.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	left := c.Min.X
	for i, row := range b.all {
		mid := y(b.y(i))
		c.FillText(nameStyle(row), vg.Point{X: left - 6, Y: mid}, row.name)
		if row.label == "" {
			continue
		}
		end, top, bottom := x(row.value), mid+barHeight/2, mid-barHeight/2
		c.FillPolygon(row.paint.color(), []vg.Point{
			{X: left, Y: bottom}, {X: end, Y: bottom}, {X: end, Y: top}, {X: left, Y: top},
		})
		if row.low < row.high {
			c.StrokeLine2(stroke(ink, 1), max(x(max(row.low, p.X.Min)), left), mid, x(row.high), mid)
			c.StrokeLine2(stroke(ink, 1), x(row.high), mid-3, x(row.high), mid+3)
			end = max(end, x(row.high))
		}
		c.FillText(labelStyle, vg.Point{X: end + 5, Y: mid}, row.label)
	}
	if b.line > 0 {
		at := x(b.line)
		c.StrokeLine2(stroke(ink, 1, 3, 2), at, c.Min.Y, at, c.Max.Y)
		c.FillText(textStyle(ink, false, text.XCenter, text.YBottom), vg.Point{X: at, Y: c.Max.Y + 2}, b.lineLabel)
	}
}

var labelStyle = textStyle(ink, false, text.XLeft, text.YCenter)

func nameStyle(b bar) text.Style { return textStyle(ink, b.label == "", text.XRight, text.YCenter) }

// GlyphBoxes returns the space that the texts need. The library calls it.
func (b bars) GlyphBoxes(p *plot.Plot) (boxes []plot.GlyphBox) {
	for i, row := range b.all {
		y := p.Y.Norm(b.y(i))
		box := nameStyle(row).Rectangle(row.name).Add(vg.Point{X: -8})
		boxes = append(boxes, plot.GlyphBox{X: 0, Y: y, Rectangle: box})
		if row.label != "" {
			box := labelStyle.Rectangle(row.label).Add(vg.Point{X: 14})
			boxes = append(boxes, plot.GlyphBox{X: p.X.Norm(max(row.value, row.high)), Y: y, Rectangle: box})
		}
	}
	return boxes
}
