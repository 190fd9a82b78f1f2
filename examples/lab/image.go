package main

import (
	"bytes"
	"encoding/base64"
	"html/template"
	"image"
	"image/color"
	"image/png"
)

// heatPalette goes from nothing, through which the page shows, over blue to red,
// so that it can be read on light and dark.
var heatPalette = func() (p color.Palette) {
	const n = 64
	cold, hot := color.NRGBA{40, 120, 220, 255}, color.NRGBA{230, 60, 30, 255}
	for i := range n {
		x := float64(i) / (n - 1)
		mix := func(a, b uint8) uint8 { return uint8(float64(a) + max(0, 2*x-1)*(float64(b)-float64(a))) }
		p = append(p, color.NRGBA{mix(cold.R, hot.R), mix(cold.G, hot.G), mix(cold.B, hot.B), uint8(255 * min(1, 1.6*x))})
	}
	return p
}()

// png returns the heat as the address of an image that carries its own data: a row
// for each engine, a column for each time. full is the number of requests at which
// the palette ends.
func (h *heat) png(full float64) template.URL {
	img := image.NewPaletted(image.Rect(0, 0, h.Columns, h.Engines), heatPalette)
	for column := range h.Columns {
		for engine := range h.Engines {
			x := min(h.at(column, engine)/full, 1)
			img.SetColorIndex(column, engine, uint8(x*float64(len(heatPalette)-1)+0.5))
		}
	}
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestCompression}
	_ = e.Encode(&b, img) // a bytes.Buffer takes everything, and the image has a size
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()))
}

// at returns the mean number of requests of an engine in a column.
func (h *heat) at(column, engine int) float64 {
	return float64(h.Levels[column*h.Engines+engine]) * h.Scale
}

// mean is over all engines and columns.
func (h *heat) mean() float64 {
	var sum float64
	for _, l := range h.Levels {
		sum += float64(l)
	}
	return sum * h.Scale / float64(max(len(h.Levels), 1))
}
