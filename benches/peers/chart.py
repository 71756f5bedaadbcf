"""A small figure of bars as plain SVG: a column of requests a second and one of processor time, a row of panels a program."""

from html import escape

TITLES = {
    "copy": "copy a file of 1 GiB, depth 32",
    "durable": "10,000 durable writes of 4 KiB, 8 tasks",
    "hot-set": "1,000,000 reads of a hot set, 8 readers",
}
COLUMNS = [("requests/s, more is better", 1), ("CPU us a request, less is better", 2)]
LEFT, WIDE, ROW, HEAD, GAP = 82, 300, 16, 26, 22
OURS, THEIRS = "#1f6feb", "#b6bec8"


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def text(x, y, words, extra=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" {extra}>{escape(words)}</text>'


def panel(top, drawn, column, left):
    """The bars of one program and one figure."""
    most = max(side[column] for side in drawn)
    for at, side in enumerate(drawn):
        y = top + at * ROW
        bar = max(1.0, side[column] / most * (WIDE - 70))
        ours = side[0] == "baio"
        yield f'<rect x="{left}" y="{y}" width="{bar:.1f}" height="{ROW - 4}" fill="{OURS if ours else THEIRS}"/>'
        yield text(left + bar + 4, y + 10, number(side[column]))
        if column == 1:
            yield text(left - 6, y + 10, side[0], 'text-anchor="end"' + (' font-weight="bold"' if ours else ""))


def draw(programs, about):
    """`programs`: name to rows of side, requests a second, processor time in us. `about`: lines below the figure."""
    lines, top = [], 10
    for name, drawn in programs.items():
        lines.append(text(10, top + 12, TITLES[name], 'font-weight="bold"'))
        for told, column in COLUMNS:
            left = LEFT + (column - 1) * (WIDE + 10)
            lines.append(text(left, top + HEAD, told, 'fill="#57606a"'))
            lines.extend(panel(top + HEAD + 6, drawn, column, left))
        top += HEAD + 6 + len(drawn) * ROW + GAP
    for line in about.splitlines():
        lines.append(text(10, top, line, 'fill="#57606a" font-size="9"'))
        top += 13
    wide = LEFT + 2 * (WIDE + 10)
    style = 'font-family="sans-serif" font-size="11" fill="#1f2328"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{top}" viewBox="0 0 {wide} {top}" {style}>'
    return "\n".join([head, f'<rect width="{wide}" height="{top}" fill="#ffffff"/>', *lines, "</svg>", ""])
