package report

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// drawing is a finished plot.
type drawing struct {
	name     string // part of its file name
	title    string
	subtitle string // the explanation below the title
	svg      []byte
}

const (
	width   = vg.Length(600) // that of a README
	size    = vg.Length(10)  // of text
	leading = vg.Length(14)  // height of a line of text
)

// face is the font for measuring text. Readers see their machine's Arial.
func face(bold bool) font.Font {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return f
}

func textStyle(p paint, bold bool, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{
		Color: p.color(), Font: face(bold), XAlign: x, YAlign: y, Handler: text.Plain{Fonts: font.DefaultCache},
	}
}

func stroke(p paint, w vg.Length, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: p.color(), Width: w, Dashes: dashes}
}

// newDrawing draws a title and an explanation, and calls plot to draw the rest below them.
func newDrawing(name, title, subtitle string, height vg.Length, plot func(draw.Canvas)) drawing {
	height += 2*leading + 6
	canvas := &measuringCanvas{Canvas: vgsvg.New(width, height)}
	c := draw.New(canvas)
	c.FillText(textStyle(ink, true, text.XLeft, text.YTop), vg.Point{X: 4, Y: height - 2}, title)
	c.FillText(textStyle(muted, false, text.XLeft, text.YTop), vg.Point{X: 4, Y: height - 2 - leading}, subtitle)
	plot(draw.Crop(c, 4, -12, 4, -2*leading-6))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		panic(err) // writing to a buffer does not fail
	}
	return drawing{name: name, title: title, subtitle: subtitle, svg: addStyle(b.String(), title, canvas.widths)}
}

// measuringCanvas records the width of each text.
type measuringCanvas struct {
	*vgsvg.Canvas
	widths []vg.Length
}

// FillString draws a text. The library calls it.
func (m *measuringCanvas) FillString(f font.Face, at vg.Point, text string) {
	m.widths = append(m.widths, f.Width(text))
	m.Canvas.FillString(f, at, text)
}

// addStyle adds a title and a style to the SVG. It replaces the font that the library writes by
// one of the reader's machine, with the widths for which the text was laid out.
func addStyle(svg, title string, widths []vg.Length) []byte {
	const fontStyle = "font-family:Liberation Sans;font-variant:normal;font-weight:%s;font-style:normal;"
	svg = strings.NewReplacer(fmt.Sprintf(fontStyle, "normal"), "", fmt.Sprintf(fontStyle, "bold"), "font-weight:bold;").
		Replace(svg)
	const element = "<text "
	pieces := strings.Split(svg, element)
	for i, w := range widths {
		pieces[i+1] = fmt.Sprintf(`%stextLength="%.5g" lengthAdjust="spacingAndGlyphs" %s`, element, w, pieces[i+1])
	}
	svg = strings.Join(pieces, "")
	open := strings.Index(svg, "<svg")
	end := open + strings.Index(svg[open:], ">")
	head := ` role="img"><title>` + html.EscapeString(title) + "</title>\n" +
		"<style>text{font-family:Arial,Helvetica,sans-serif}" + darkStyle(svg) + "</style>"
	return []byte(svg[:end] + head + svg[end+1:])
}

// newPlot returns a plot without background and axis lines.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Width = 0
		a.Padding = 2
		a.Tick.LineStyle.Width = 0
		a.Tick.Length = 4
		a.Tick.Label = textStyle(muted, false, a.Tick.Label.XAlign, a.Tick.Label.YAlign)
		a.Label.TextStyle = textStyle(muted, false, text.XCenter, text.YBottom)
		a.Label.Padding = 2
	}
	return p
}
