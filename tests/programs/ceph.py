def osd(machine):
    pass
