"""Chat messages as model APIs have them, and what stands for them in the protocol: `messages` the list, `parts` what one holds.

No model is asked anything here.
"""
