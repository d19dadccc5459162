package report

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// drawing is a plot, ready to be written.
type drawing struct {
	name  string // in its file's name
	title string
	below string // what is to be known about it
	svg   []byte
}

const (
	width   = vg.Length(600) // as wide as a README is shown
	size    = vg.Length(10)  // of text
	leading = vg.Length(14)
)

// face is measured as it is named here, and shown in what stands in for Arial
// where the plot is read.
func face(bold bool) font.Font {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return f
}

func letters(p paint, bold bool, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{Color: p.color(), Font: face(bold), XAlign: x, YAlign: y, Handler: text.Plain{Fonts: font.DefaultCache}}
}

func stroke(p paint, w vg.Length, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: p.color(), Width: w, Dashes: dashes}
}

// sheet draws a title, and lets the rest be drawn below it, so high.
func sheet(name, title, below string, height vg.Length, rest func(draw.Canvas)) drawing {
	height += 2*leading + 6
	canvas := &measured{Canvas: vgsvg.New(width, height)}
	c := draw.New(canvas)
	c.FillText(letters(ink, true, text.XLeft, text.YTop), vg.Point{X: 4, Y: height - 2}, title)
	c.FillText(letters(muted, false, text.XLeft, text.YTop), vg.Point{X: 4, Y: height - 2 - leading}, below)
	rest(draw.Crop(c, 4, -12, 4, -2*leading-6))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		panic(err) // a buffer takes everything
	}
	return drawing{name: name, title: title, below: below, svg: styled(b.String(), title, canvas.lengths)}
}

// measured remembers how long each text is, in the letters it was laid out with.
type measured struct {
	*vgsvg.Canvas
	lengths []vg.Length
}

// FillString is called by the library.
func (m *measured) FillString(f font.Face, at vg.Point, text string) {
	m.lengths = append(m.lengths, f.Width(text))
	m.Canvas.FillString(f, at, text)
}

// styled gives the SVG its name, its style, and letters of the reader's
// machine, as wide as those it was laid out with, whose name the library writes.
func styled(svg, title string, lengths []vg.Length) []byte {
	for _, weight := range []string{"normal", "bold"} {
		was := "font-family:Liberation Sans;font-variant:normal;font-weight:" + weight + ";font-style:normal;"
		now := ""
		if weight == "bold" {
			now = "font-weight:bold;"
		}
		svg = strings.ReplaceAll(svg, was, now)
	}
	const element = "<text "
	pieces := strings.Split(svg, element)
	for i, length := range lengths {
		pieces[i+1] = fmt.Sprintf(`%stextLength="%.5g" lengthAdjust="spacingAndGlyphs" %s`, element, length, pieces[i+1])
	}
	svg = strings.Join(pieces, "")
	open := strings.Index(svg, "<svg")
	end := open + strings.Index(svg[open:], ">")
	head := ` role="img"><title>` + html.EscapeString(title) + "</title>\n" +
		"<style>text{font-family:Arial,Helvetica,sans-serif}" + darkened(svg) + "</style>"
	return []byte(svg[:end] + head + svg[end+1:])
}

// bare is a plot without ground or axis lines, in our letters.
func bare() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Width = 0
		a.Padding = 2
		a.Tick.LineStyle.Width = 0
		a.Tick.Length = 4
		a.Tick.Label = letters(muted, false, a.Tick.Label.XAlign, a.Tick.Label.YAlign)
		a.Label.TextStyle = letters(muted, false, text.XCenter, text.YBottom)
		a.Label.Padding = 2
	}
	return p
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
