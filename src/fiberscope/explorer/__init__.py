"""Pictures that answer: a complex in a page or a notebook that can be panned, zoomed and asked, without a server."""
